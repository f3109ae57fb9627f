from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_task import MoreX
from training_runs import commands_at_once

from treemem.cli import main
from treemem.runs import read_study
from treemem.runs.study_file import StudyFolder
from treemem.tasks import queue
from treemem.tasks.queue import Entry, Places

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_page_is_written_from_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RESULTS / "reading", tmp_path / "reading")
    words = ["reproduce", "reading", "--results", str(tmp_path / "reading"), "--page", str(tmp_path / "reading.md")]
    assert main(words) == 0
    said = capsys.readouterr()
    assert f"page: {tmp_path / 'reading.md'}" in said.out
    assert "no study is named, so nothing is trained, and the page is written from" in said.err
    assert f"name studies: {', '.join(StudyFolder.find('reading').studies)}" in said.err
    assert (tmp_path / "reading.md").read_text() == (RESULTS / "reading.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["listop"], "no task 'listop'; did you mean listops"),
        (["listops", "big"], "listops has no study 'big'"),
        (["equation_verification/completoin"], "no studies in the folder of equation_"),
        (["listops", "--results", "none"], "no records in none; name studies of listops to run: beam_trees, "),
        (["comparison", "--networks", "LSTM"], "LSTM is for runs; name the study too, learned"),
        (["listops", "--again", "mine"], "--again mine is for runs; name the study too"),
        (["listops", "small", "--again", "mine", "--runs", "other"], "leave out --runs, --results and --page"),
        (["listops", "small", "--shard", "3/2"], "--shard 3/2: write K/N with K from 1 to N, such as 1/8"),
        (["listops", "small", "--shard", "0/2"], "--shard 0/2: write K/N with K from 1 to N, such as 1/8"),
        (["listops", "small", "--networks", "LSTN"], "no study has a row 'LSTN'; did you mean LSTM"),
        (["comparison", "learned", "--shard", "1/2"], "jobs share the rows of a comparison by `treemem queue`"),
        (["comparison", "smal"], "comparison has no study 'smal'; there are learned, learned-listops"),
        (["comparison", "learned", "--processes", "0"], "--processes must be at least 1, not 0"),
        (["claims", "small"], "claims has no studies; leave out small"),
        (["comparison", "learned", "--networks", "LSTN"], "no network 'LSTN'; did you mean LSTM"),
        (["comparison", "learned-logic", "--files", f"published_dev={__file__}"], "called 'published_dev'"),
        (["logical_inference", "gold-trees"], "gold-trees needs --data"),
        (["logical_inference", "gold-trees", "--data", "absent"], "--data absent: there is no such folder"),
    ],
)
def test_a_wrong_command_is_told(
    words: list[str], message: str, tmp_path: Path, failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert message in failing("reproduce", *words)


def test_the_comparison_at_equal_cost_runs_the_named_rows_with_so_many_processes_and_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., str]
) -> None:
    asked: list[tuple[list[Entry], Places, int]] = []

    def told(entries: list[Entry], places: Places, processes: int) -> dict[str, str]:
        asked.append((entries, places, processes))
        return {"comparison/learned-listops/LSTM": "no such data"}

    monkeypatch.setattr(queue, "run_queue", told)
    (tmp_path / "lines.tsv").write_text("")
    (tmp_path / "published").mkdir()
    words = ["comparison", "learned", "--networks", "LSTM", "Ordered Memory, published size", "--processes", "2"]
    words += ["--data", str(tmp_path / "published"), "--files", f"published_lines={tmp_path / 'lines.tsv'}"]
    words += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "mine"), "--page", str(tmp_path / "p.md")]
    assert "comparison/learned-listops/LSTM: no such data" in failing("reproduce", *words)
    ((entries, places, processes),) = asked
    assert processes == 2
    jobs = {entry.study: [job.name.rpartition("/")[2] for job in entry.jobs(places)] for entry in entries}
    assert jobs == {
        "comparison/learned-listops": ["LSTM", "Ordered Memory, published size"],
        "comparison/learned-logic": ["LSTM", "Ordered Memory, published size"],
        "comparison/learned-equations": ["LSTM, preorder", "LSTM, function"],
    }
    assert places.comparison == tmp_path / "mine"
    assert entries[0].files == {"published_lines": tmp_path / "lines.tsv"}
    assert entries[2].files["published_dev"] == "equations/published_dev.jsonl"  # in the folder of published files


STUDY = """
networks: [sum]
seeds: [1, 2, 3]
training: {epochs: 1, batch_size: 16, accelerator: cpu}
variants:
  whole: {}
  small: {network_options: {hidden_size: 2}}
splits: [validation, test]
"""
PAGE = """# Toys

{% for row, runs in same_options(page.records("small")).items() %}
{{ row }}: {{ runs | length }} runs, {{ metric(runs, "test") }}
{% endfor %}
"""
RECORDS = Path("docs", "results", "toys", "small.jsonl")
TIMES = {"seconds", "compute_seconds", "trees_per_second"}


def find_toys(path: Path) -> None:
    """Let the command find the study of the toy task in a folder."""
    StudyFolder.find = classmethod(lambda cls, name: StudyFolder("more_x", MoreX, path, ""))  # type: ignore[method-assign,assignment]


@pytest.fixture
def toys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the study of the toy task, which the command finds; ``docs/results`` is empty."""
    monkeypatch.setattr(StudyFolder, "find", StudyFolder.find)  # so that it is put back
    path = folder / "task"
    (path / "studies").mkdir(parents=True)
    (path / "studies" / "shared.yaml").write_text("page: toys\ndata:\n  data: {options: {count: 40}}\n")
    (path / "studies" / "small.yaml").write_text(STUDY)
    (path / "results.md.j2").write_text(PAGE)
    (folder / "docs" / "results").mkdir(parents=True)
    find_toys(path)
    return path


def without_times(file: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name not in TIMES} for record in read_study(file)]


def test_the_command_says_what_it_will_do_and_prints_scores_with_seeds_and_intervals(
    toys: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "treemem")
    assert main(["reproduce", "more_x", "small"]) == 0
    said = caplog.text
    plan = f"{RECORDS}: 0 of 6 runs are recorded; 6 to run, first small/sum, whole/seed-1"
    assert 0 <= said.index(plan) < said.index("done, ")
    head, _, *lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        *("row", "seeds (n)", "validation accuracy, %", "95 % interval (Student's t over seeds)"),
        *("test accuracy, %", "95 % interval (Student's t over seeds)"),
    ]
    assert [[cell.strip() for cell in line.strip("|").split("|")][:2] for line in lines] == [
        ["sum, whole", "3"],
        ["sum, small", "3"],
    ]
    assert "sum, whole: 3 runs" in Path("docs/results/toys.md").read_text()
    caplog.clear()
    assert main(["reproduce", "more_x", "small", "--format", "latex"]) == 0
    assert f"{RECORDS}: 6 of 6 runs are recorded; --again FOLDER trains them anew" in caplog.text
    assert r"row & seeds (n) & validation accuracy, \% & " in capsys.readouterr().out


def test_one_row_is_trained_anew_in_another_folder(
    toys: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "more_x", "small"]) == 0
    before = {path: path.read_bytes() for path in Path("docs").rglob("*") if path.is_file()}
    capsys.readouterr()
    words = ["reproduce", "more_x", "small", "--networks", "sum, small", "--again", "mine"]
    assert main(words) == 0
    assert {path: path.read_bytes() for path in Path("docs").rglob("*") if path.is_file()} == before
    anew = without_times(Path("mine/results/toys/small.jsonl"))
    assert [record["run"] for record in anew] == [f"small/sum, small/seed-{seed}" for seed in (1, 2, 3)]
    assert anew == [record for record in without_times(RECORDS) if record["row"] == "sum, small"]
    tables = capsys.readouterr().out
    assert "mine/results/toys/small.jsonl: mean" in tables
    assert f"{RECORDS}: mean" in tables
    assert len({line for line in tables.splitlines() if line.startswith("| sum, small")}) == 1
    monkeypatch.setattr("treemem.runs.run.fit", lambda *_, **__: pytest.fail("this was done before"))
    assert main(words) == 0


def test_jobs_at_once_with_a_shard_each_record_every_run_once_and_in_order(toys: Path) -> None:
    shards = [["reproduce", "more_x", "small", "--shard", f"{number}/3"] for number in (1, 2, 3)]
    assert commands_at_once(Path.cwd(), *shards, prepare=partial(find_toys, toys)) == [0, 0, 0]
    assert not Path("docs/results/toys.md").exists()
    assert main(["reproduce", "more_x", "small", "--again", "alone"]) == 0
    assert without_times(RECORDS) == without_times(Path("alone/results/toys/small.jsonl"))
    assert not list(Path("docs").rglob(".*"))


def test_two_jobs_with_the_same_runs_lose_nothing_and_record_nothing_twice(toys: Path) -> None:
    words = ["reproduce", "more_x", "small"]
    codes = commands_at_once(Path.cwd(), words, words, prepare=partial(find_toys, toys))
    assert {*codes} <= {0, 2}  # 2: the other job was training the run
    assert main(words) == 0
    recorded = [record["run"] for record in read_study(RECORDS)]
    assert len(recorded) == 6
    assert len({*recorded}) == 6
