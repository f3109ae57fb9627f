from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treemem.cli import main
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
