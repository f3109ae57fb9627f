from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from treemem import checkpoint
from treemem.records import write_records
from treemem.runs import right_answers
from treemem.tasks.equation_verification.completion import reproduce
from treemem.tasks.equation_verification.study_data import StudyData

SEEDS = (1, 2)


@pytest.fixture
def study(untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two networks of two seeds in ``runs``, and the equations that they were trained on."""
    records = []
    for name in ("Tree-LSTM", "Tree-RNN"):
        for seed in SEEDS:
            run = f"table-2/{name}/seed-{seed}"
            (tmp_path / "runs" / run).parent.mkdir(parents=True, exist_ok=True)
            checkpoint.save(tmp_path / "runs" / run, untrained(name, seed=seed).float())
            records.append({"run": run, "row": name, "training": {"seed": seed}})
    write_records(tmp_path / "study.jsonl", records)
    monkeypatch.setattr(reproduce, "StudyData", lambda folder: StudyData(folder, size=300, seed=1))
    return tmp_path


def run(study: Path, *arguments: str) -> int:
    places = {"runs": "runs", "study": "study.jsonl", "results": "results", "page": "page.md"}
    options = [part for name, place in places.items() for part in (f"--{name}", str(study / place))]
    return reproduce.main([*options, *arguments])


def test_a_page_is_made_of_all_seeds_and_what_is_recorded_is_not_run_again(study: Path) -> None:
    sample = study / "sample.jsonl"
    write_records(
        sample,
        [{"preorder": "Equality Add Symbol:var_0 One:1 Add Integer:1 Symbol:var_0", "blank_node": 3, "label": 1}],
    )
    both = ["generated", "published_sample", "--sample", str(sample), "--limit", "5"]
    assert run(study, *both) == 0
    file = study / "results" / "generated.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [record["run"] for record in records] == [
        f"{name}/seed-{seed}" for name in ("Tree-LSTM", "Tree-RNN") for seed in SEEDS
    ]
    first = records[0]
    assert first["command"].endswith("reproduce generated --study study.jsonl --limit 5")
    assert first["data"]["equations"] == 5
    top = first["scores"]["class"][-1]["top"][0]
    assert right_answers(first, "class").mean() == pytest.approx(top)
    text = (study / "page.md").read_text(encoding="utf-8")
    for part in ("Generated test equations", "A sample of the published", "### By depth", "Against Tree-LSTM", "±"):
        assert part in text
    assert {path.name for path in study.glob("*.svg")} == {"page_generated.svg", "page_published_sample.svg"}
    before = file.read_bytes(), text
    assert run(study, *both) == 0
    assert (file.read_bytes(), (study / "page.md").read_text(encoding="utf-8")) == before
    assert run(study) == 0, "the page alone"
    assert (study / "page.md").read_text(encoding="utf-8") == text


def recorded(study: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (study / "results" / "generated.jsonl").read_text().splitlines()]


def test_a_run_whose_folder_is_gone_keeps_its_record_and_stops_no_other(study: Path, caplog) -> None:
    gone = study / "runs/table-2/Tree-LSTM/seed-1"
    later = gone.with_name("seed-2")
    later.rename(study / "later")
    caplog.set_level(logging.INFO)
    assert run(study, "generated", "--limit", "2") == 0
    assert [record["run"] for record in recorded(study)] == ["Tree-LSTM/seed-1", "Tree-RNN/seed-1", "Tree-RNN/seed-2"]
    assert f"generated: Tree-LSTM/seed-2 left out, there is no folder {later}" in caplog.messages
    shutil.rmtree(gone)
    (study / "later").rename(later)
    (study / "page.md").unlink()
    assert run(study, "generated", "--limit", "2") == 0
    assert sorted(record["run"] for record in recorded(study)) == [
        f"{name}/seed-{seed}" for name in ("Tree-LSTM", "Tree-RNN") for seed in SEEDS
    ]
    assert "4 runs of the seeds 1, 2" in (study / "page.md").read_text(encoding="utf-8")


def test_records_of_other_weights_are_not_taken_for_these(study: Path, untrained, capsys) -> None:
    assert run(study, "generated", "--limit", "2") == 0
    checkpoint.save(study / "runs/table-2/Tree-LSTM/seed-1", untrained("Tree-LSTM", seed=9).float())
    assert run(study, "generated", "--limit", "2") == 2
    assert "the run 'Tree-LSTM/seed-1' with other weights; remove that line" in capsys.readouterr().err


def test_a_file_of_records_takes_no_other_equations_from_the_runs_of_another_study(study: Path, capsys) -> None:
    first, second = study / "first.jsonl", study / "second.jsonl"
    records = [json.loads(line) for line in (study / "study.jsonl").read_text().splitlines()]
    write_records(first, records[:2])
    write_records(second, records[2:])
    assert run(study, "generated", "--limit", "3", "--study", str(first)) == 0
    before, page = recorded(study), (study / "page.md").read_bytes()
    for others in (["--limit", "2"], []):
        assert run(study, "generated", *others, "--study", str(second)) == 2
        error = capsys.readouterr().err
        assert "its run 'Tree-LSTM/seed-1' is of 3 equations (" in error
        assert "reproduce generated --study first.jsonl --limit 3' did, or remove the lines of either" in error
        assert "another folder with --results" in error
    assert recorded(study) == before
    assert run(study, "generated", "--limit", "3", "--study", str(second)) == 0
    assert len(recorded(study)) == 4
    assert (study / "page.md").read_bytes() != page


def test_a_page_is_not_made_of_records_of_as_many_other_equations(study: Path, capsys) -> None:
    assert run(study, "generated", "--limit", "2") == 0
    records = recorded(study)
    records[-1]["data"]["hash"] = "0" * 64
    write_records(study / "results" / "generated.jsonl", records)
    page = (study / "page.md").read_bytes()
    assert run(study) == 2
    assert "its run 'Tree-RNN/seed-2' is of 2 equations (000000000000...), not of these 2" in capsys.readouterr().err
    assert (study / "page.md").read_bytes() == page


def test_the_command_of_a_record_names_the_files_and_not_where_they_are(study: Path) -> None:
    assert run(study, "generated", "--limit", "2") == 0
    assert {record["command"] for record in recorded(study)} == {
        "python -m treemem.tasks.equation_verification.completion.reproduce generated --study study.jsonl --limit 2"
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["everything"], "no set is called 'everything'; there are generated, published_sample"),
        (["published_sample"], "needs --sample"),
        (["generated", "--limit", "0"], "--limit must be at least 1"),
        ([], "there are no records in"),
    ],
)
def test_mistakes_are_errors_and_no_tracebacks(study: Path, arguments: list[str], problem: str, capsys) -> None:
    assert run(study, *arguments) == 2
    assert problem in capsys.readouterr().err


def test_without_a_study_there_is_nothing_to_complete_with(study: Path, capsys) -> None:
    (study / "study.jsonl").unlink()
    assert run(study, "generated") == 2
    assert "study.jsonl has no records of trained runs" in capsys.readouterr().err
