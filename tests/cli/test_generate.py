from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treemem.cli import main
from treemem.records import locked, read_records
from treemem.task import TASKS
from treemem.tasks.listops import ListOps, ListOpsDataOptions
from treemem.tasks.logical_inference import LogicalInference, LogicDataOptions
from treemem.trees.formats.record_reader import SPLITS

SMALL = ["data.training_size=10", "data.validation_size=5", "data.test_size=5", "data.pool=0"]


def test_a_file_holds_the_examples_of_the_fields_that_are_set(folder: Path) -> None:
    data = ListOps().make_data(ListOpsDataOptions(training_size=10, validation_size=5, test_size=5, pool=0)).forest
    for suffix in ("jsonl", "csv.gz", "parquet"):
        assert main(["generate", "listops", "-o", f"lists.{suffix}", *SMALL]) == 0
        found = TASKS.find("listops")().read_examples(f"lists.{suffix}")
        assert found.with_data() == data.with_data()
        assert found.tree_data["split"].tolist() == data.tree_data["split"].tolist()
    record = json.loads((folder / "lists.jsonl").read_text().splitlines()[0])
    assert list(record) == ["label", "tree", "set", "split", "length"]


def test_a_text_file_holds_what_a_line_can(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "listops", "-o", "lists.tsv", *SMALL]) == 0
    assert all(len(line.split("\t")) == 2 for line in (folder / "lists.tsv").read_text().splitlines())
    assert "text lines hold only label, tree;" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "suffix"), [("text", "txt"), (None, "jsonl"), ("csv", "csv"), ("parquet", "parquet")])
def test_a_folder_holds_a_file_for_each_split_and_the_card(folder: Path, form: str | None, suffix: str) -> None:
    small = ["data.size=300", "data.max_operations=5", "data.max_training_operations=3"]
    chosen = [] if form is None else ["--format", form]
    assert main(["generate", "logical_inference", "-o", "pairs/", *chosen, *small]) == 0
    assert sorted(path.name for path in (folder / "pairs").iterdir()) == [
        "data.md", f"test.{suffix}", f"train.{suffix}", f"validation.{suffix}",
    ]  # fmt: skip
    assert "# Logical inference" in (folder / "pairs" / "data.md").read_text()
    task, own = LogicalInference(), {"max_operations": 5, "max_training_operations": 3}
    written, found = (
        task.make_data(LogicDataOptions(**own, **where)).forest for where in ({"size": 300}, {"path": "pairs"})
    )
    for split in SPLITS:
        ours, theirs = (forest[forest.tree_data["split"] == split] for forest in (found, written))
        assert len(ours) > 0
        assert ours.with_data() == theirs.with_data()
        assert ours.tree_data["label"].tolist() == theirs.tree_data["label"].tolist()


def test_standard_output_takes_examples_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["generate", "listops", "-o", "-", "--format", "jsonl", *SMALL]) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) == 20


def test_what_exists_is_written_over_only_where_asked_for(folder: Path, failing: Callable[..., str]) -> None:
    (folder / "lists.jsonl").write_text("mine")
    said = failing("generate", "listops", "-o", "lists.jsonl", *SMALL)
    assert "lists.jsonl exists; choose another name, or replace it with --overwrite" in said
    assert (folder / "lists.jsonl").read_text() == "mine"
    assert main(["generate", "listops", "-o", "lists.jsonl", "--overwrite", *SMALL]) == 0
    assert len(list(read_records("lists.jsonl"))) == 20
    (folder / "lists").mkdir()
    (folder / "lists" / "train.jsonl").write_text("mine")
    (folder / "lists" / "notes").write_text("mine")
    assert "lists exists" in failing("generate", "listops", "-o", "lists", *SMALL)
    assert main(["generate", "listops", "-o", "lists", "--overwrite", *SMALL]) == 0
    assert (folder / "lists" / "notes").read_text() == "mine"
    assert len(list(read_records("lists/train.jsonl"))) == 10


@pytest.mark.parametrize("name", ["lists.jsonl", "lists"])
def test_what_another_command_wrote_meanwhile_is_not_written_over(
    folder: Path, failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_data = ListOps.make_data

    def slowly(task: ListOps, *given: Any, **options: Any) -> Any:
        monkeypatch.setattr(ListOps, "make_data", make_data)
        assert main(["generate", "listops", "-o", name, *SMALL, "data.seed=5"]) == 0
        return make_data(task, *given, **options)

    monkeypatch.setattr(ListOps, "make_data", slowly)
    assert f"{name} exists; choose another name" in failing("generate", "listops", "-o", name, *SMALL)
    assert main(["generate", "listops", "-o", f"again-{name}", *SMALL, "data.seed=5"]) == 0
    files = [path for path in [*folder.rglob("*.jsonl"), *folder.rglob("data.md")] if "again-" not in str(path)]
    for path in files:
        assert path.read_bytes() == Path(f"again-{path.relative_to(folder)}").read_bytes()
    with locked(folder / "lists"):
        said = failing("generate", "listops", "-o", "lists", "--overwrite", *SMALL)
    assert "another process is writing lists" in said


def test_the_file_that_is_read_is_not_written_over(folder: Path, failing: Callable[..., str]) -> None:
    (folder / "mine.tsv").write_text("9\t[MAX 2 9 ]\n")
    said = failing("generate", "listops", "-o", "mine.tsv", "--overwrite", "data.training_file=mine.tsv")
    assert "mine.tsv is the input" in said
    assert (folder / "mine.tsv").read_text() == "9\t[MAX 2 9 ]\n"
