"""The studies of all tasks beside their committed records: nothing would run again, and the pages say the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from treemem.runs import read_study
from treemem.runs.results_page import write_page
from treemem.runs.study_file import StudyFolder
from treemem.tasks.queue import read_queue

RESULTS = Path(__file__).parents[2] / "docs" / "results"
QUEUED = {entry.study for entry in read_queue()}
"""Studies whose runs need not be recorded yet."""
FOLDERS = (
    "equation_verification",
    "listops",
    "logical_inference",
    "language_modeling",
    "language_modeling/treebank",
    "language_modeling/english",
    "sentiment",
    "transduction",
    "text_to_text/scan",
    "reading",
    "formal_languages",
    "learning_to_execute",
)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_page_is_what_reproduce_writes_from_the_committed_records(name: str, tmp_path: Path) -> None:
    folder = StudyFolder.find(name)
    for page in RESULTS.glob("*_trees.html"):  # which a page links
        shutil.copy(page, tmp_path)
    write_page(folder, RESULTS / folder.page, tmp_path / f"{folder.page}.md")
    assert (tmp_path / f"{folder.page}.md").read_text() == (RESULTS / f"{folder.page}.md").read_text()
    for plot in tmp_path.glob("*.svg"):
        assert (RESULTS / plot.name).exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_every_run_of_a_study_is_recorded_with_its_options(name: str) -> None:
    folder = StudyFolder.find(name)
    for study_name in folder.studies:
        study = folder.study(study_name)
        results = RESULTS / folder.page / f"{study_name}.jsonl"
        records = {record["run"]: record for record in read_study(results)}
        runs = study.runs()
        missing = {run.name for run in runs} - {*records}
        assert not runs or {*records} <= {run.name for run in runs}
        assert not missing or f"{name}/{study_name}" in QUEUED
        for run in runs:
            if run.name in missing:
                continue
            record = records[run.name]
            assert (record["row"], record["data"]["name"]) == (run.row, run.data)
            assert run.task is not None
            assert run.differences(record, run.task, record["data"]["hash"]) == {}
            assert {*study.splits} <= record["scores"].keys()
        for measurement in [] if missing else study.measurements:
            assert read_study(results.with_name(f"{measurement}.jsonl"))
