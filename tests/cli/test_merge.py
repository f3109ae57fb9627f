"""Folders that jobs wrote on their own become one: nothing is lost, nothing stands twice, and conflicts are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treemem
from treemem.cli import main
from treemem.model_digest import weights_digest
from treemem.records import write_records
from treemem.runs import read_study

FILES = ["results.jsonl", "table.md", "data.md", "sum/results.jsonl", "sum/answers.jsonl", "sum/recipe.yaml"]


def train(output: str, *words: str) -> None:
    assert main(["train", "toy.yaml", "-o", output, "--networks", "sum", *words]) == 0


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_outputs_of_jobs_become_that_of_one_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("one", "--seeds", "1", "2")
    train("two", "--seeds", "2", "3")
    train("whole", "--seeds", "1", "2", "3")
    before = contents(folder / "one"), contents(folder / "two")
    capsys.readouterr()
    assert main(["merge", "one", "two", "-o", "both"]) == 0
    said = capsys.readouterr().out
    assert "both/sum: 3 added, 1 were there" in said
    assert "| sum " in said
    for name in FILES:
        assert (folder / "both" / name).read_text() == (folder / "whole" / name).read_text()
    assert (contents(folder / "one"), contents(folder / "two")) == before
    for seed in (1, 2, 3):
        merged, alone = (treemem.load(folder / name / "sum" / f"seed-{seed}") for name in ("both", "whole"))
        assert weights_digest(merged) == weights_digest(alone)
    assert main(["merge", "two", "one", "-o", "both"]) == 0
    assert "both/sum: 0 added, 4 were there" in capsys.readouterr().out
    train("both", "--seeds", "1", "2", "3")  # the same options, so that nothing is trained
    assert (folder / "both" / "results.jsonl").read_text() == (folder / "whole" / "results.jsonl").read_text()


def test_a_merge_that_was_interrupted_goes_on(folder: Path, trained: Path) -> None:
    shutil.copytree(trained / "sum" / "seed-1", folder / "out" / "sum" / "seed-1")  # copied and not yet recorded
    (folder / "out" / "sum" / ".seed-2.tmp").mkdir()
    assert main(["merge", "run", "-o", "out"]) == 0
    for name in FILES:
        assert (folder / "out" / name).read_text() == (trained / name).read_text()
    assert not list((folder / "out").rglob("*.tmp"))


def change_record(folder: Path, **changes: Any) -> None:
    file = folder / "sum" / "answers.jsonl"
    records = read_study(file)
    write_records(file, [{**records[0], **changes}, *records[1:]])


def test_conflicts_of_outputs_are_refused_and_nothing_is_written(
    folder: Path, trained: Path, failing: Callable[..., str]
) -> None:
    other = shutil.copytree(trained, folder / "other")
    change_record(other, weights="0" * 64)
    assert "have different records of 'seed 1': weights. Nothing was merged" in failing(
        "merge", "run", "other", "-o", "out"
    )
    for words, problem in (
        (["training.learning_rate=0.01"], "were trained with different options: learning_rate was 0.05 and is 0.01"),
        (["data.count=50"], "was trained on other data than"),
    ):
        train("third", "--seeds", "3", *words)
        assert problem in failing("merge", "run", "third", "-o", "out")
        shutil.rmtree(folder / "third")
    assert not list((folder / "out").rglob("*.jsonl"))
    shutil.copytree(trained / "sum" / "seed-2", folder / "out" / "sum" / "seed-1")
    assert "out/sum/seed-1 holds another run than the record to merge" in failing("merge", "run", "-o", "out")


def test_a_seed_without_scores_is_left_out_and_named(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = read_study(trained / "sum" / "answers.jsonl")
    write_records(trained / "sum" / "answers.jsonl", records[:1])
    assert main(["merge", "run", "-o", "out"]) == 0
    assert "run/sum: the seeds 2 have no recorded scores and are left out" in capsys.readouterr().err
    assert [path.name for path in (folder / "out" / "sum").glob("seed-*")] == ["seed-1"]


def record(run: str, **changes: Any) -> dict[str, Any]:
    return {"run": run, "row": "sum", "weights": f"of {run}", "seconds": 1.5, **changes}


def test_records_of_studies_are_merged_file_by_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = folder / "one", folder / "two" / "toys"
    for place in (one / "toys", two, folder / "out" / "toys"):
        place.mkdir(parents=True)
    write_records(folder / "out" / "toys" / "small.jsonl", [record("a")])
    write_records(one / "toys" / "small.jsonl", [record("b"), record("a")])
    write_records(two / "small.jsonl", [record("b", odds=None), record("c", odds=2)])
    write_records(two / "counts.jsonl", [{"set": "data", "examples": 4}])
    trial = {"parameters": 3, "row": "LSTM", "optimizer": "adam", "learning_rate": 0.1}
    write_records(two / "trials.jsonl", [trial, {**trial, "learning_rate": 0.2}])
    errors = [{"name": "LSTM", "sharpness": sharpness, "correct": 9} for sharpness in (1.0, 2.0)]
    write_records(two / "errors.jsonl", errors)  # whose first field does not tell them apart
    assert main(["merge", "one", "two", "-o", "out"]) == 0
    assert read_study(folder / "out" / "toys" / "errors.jsonl") == errors
    assert [(each["run"], each.get("odds")) for each in read_study(folder / "out" / "toys" / "small.jsonl")] == [
        ("a", None), ("b", None), ("c", 2),
    ]  # fmt: skip
    assert read_study(folder / "out" / "toys" / "counts.jsonl") == [{"set": "data", "examples": 4}]
    assert len(read_study(folder / "out" / "toys" / "trials.jsonl")) == 2
    assert "out/toys/small.jsonl: 2 added, 2 were there" in capsys.readouterr().out


def test_conflicting_records_of_a_run_are_refused_and_nothing_is_written(
    folder: Path, failing: Callable[..., str]
) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
    write_records(folder / "one" / "first.jsonl", [record("a")])
    write_records(folder / "one" / "small.jsonl", [record("b")])
    write_records(folder / "two" / "small.jsonl", [record("c"), record("b", weights="others", seconds=2.0)])
    problem = failing("merge", "one", "two", "-o", "out")
    assert "one/small.jsonl and two/small.jsonl have different records of 'b': weights, seconds. Nothing" in problem
    assert not (folder / "out").exists()
    (folder / "out").mkdir()
    write_records(folder / "out" / "small.jsonl", [record("b", seconds=9.0)])
    assert "out/small.jsonl and one/small.jsonl have different records" in failing("merge", "one", "-o", "out")
    assert json.loads((folder / "out" / "small.jsonl").read_text())["seconds"] == 9.0


def test_wrong_folders_are_told(folder: Path, trained: Path, failing: Callable[..., str]) -> None:
    (folder / "empty").mkdir()
    assert "FOLDER absent: there is no such folder" in failing("merge", "absent", "-o", "out")
    assert "there are no records, *.jsonl, in empty" in failing("merge", "empty", "-o", "out")
    assert "run holds an output of treemem train and empty does not" in failing("merge", "run", "empty", "-o", "out")
    assert "empty holds records of a study and run does not" in failing("merge", "empty", "run", "-o", "out")
    assert "run is the output and needs not be named" in failing("merge", "run", "-o", "run")
    assert "toy.yaml is a file; name a folder" in failing("merge", "run", "-o", "toy.yaml")
    (trained / "sum" / "data.md").write_text("no hash\n")
    assert "run/sum/data.md is missing or has no hash of the data" in failing("merge", "run", "-o", "out")
