"""The study of language models: its measurements and its page, on a smaller grammar."""

from __future__ import annotations

from pathlib import Path

import pytest

from treemem.runs import read_study
from treemem.runs.data_sets import StudyPlaces
from treemem.runs.results_page import write_page
from treemem.runs.study_file import Study, StudyFolder
from treemem.runs.study_file_run import run_study_file
from treemem.tasks.language_modeling.data import best_perplexity
from treemem.tasks.language_modeling.generation.english import CONSTRUCTIONS

SIZES = {"training_size": 60, "validation_size": 10, "test_size": 12}


def test_the_study_has_trees_of_on_lstm_pairs_of_all_and_a_page_with_the_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StudyFolder.find("language_modeling")
    measurements = dict(folder.study("small").measurements)
    measurements["small-pairs"] = {**measurements["small-pairs"], "count": 4}
    options = {"words": 100, "steps": 10}
    shared = {"data": {"tiny": {"options": SIZES, "task_options": options}}}
    monkeypatch.setattr(StudyFolder, "shared", shared)
    study = Study(
        folder,
        "small",
        networks={"ON-LSTM": {"hidden_size": 8, "chunk_size": 4}, "LSTM": {"hidden_size": 8}},
        seeds=[1, 2],
        training={"epochs": 1, "batch_size": 8},
        task_options=options,
        data="tiny",
        measurements=measurements,
    )
    places = StudyPlaces(tmp_path / "runs", tmp_path / "results", tmp_path / "language_modeling.md")
    records = run_study_file(study, places)
    trees, pairs = (read_study(tmp_path / "results" / f"small-{name}.jsonl") for name in ("trees", "pairs"))
    of_trees = {(each["row"], each["training"]["seed"]): len(each["scores"]) > 0 for each in trees}
    assert of_trees == {("ON-LSTM", 1): True, ("LSTM", 1): False, ("ON-LSTM", 2): True, ("LSTM", 2): False}
    assert [score["trees"] for score in trees[0]["scores"]][:3] == ["layer 1", "layer 2", "left-branching"]
    assert trees[0]["scores"][0]["sentences"] == 12
    assert [each["run"] for each in pairs] == [record["run"] for record in records]
    assert [score["construction"] for score in pairs[0]["scores"]] == [*CONSTRUCTIONS, "all"]

    write_page(folder, tmp_path / "results", tmp_path / "language_modeling.md")
    page = (tmp_path / "language_modeling.md").read_text()
    task = study.runs()[0].task
    assert task is not None
    forest = task.make_data(task.data_options(**SIZES)).forest
    (line,) = (line for line in page.splitlines() if line.startswith("| LSTM "))
    assert line.split("|")[-2].strip() == f"{best_perplexity(forest, 'test'):.2f}"
    rows = ("ON-LSTM, layer 1", "ON-LSTM, layer 2", "left-branching", "random", *CONSTRUCTIONS)
    named = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert all(named.count(row) == 1 for row in rows)

    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    run_study_file(study, places)
    assert before == {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}, "nothing is run again"
