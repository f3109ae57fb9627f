"""The study of transduction: its data sets are of the kinds of their names, and what it says of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treemem.networks import NetworkConfig
from treemem.runs import StudyRun, TrainingOptions
from treemem.runs.data_sets import DataSets
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.training_curves import curve_records
from treemem.tasks.transduction import Transduction
from treemem.tasks.transduction.published import best_on_validation, is_met, solved


@pytest.mark.parametrize("kind", ["copy", "reversal"])
def test_a_data_set_of_a_study_is_of_its_own_kind(kind: str, tmp_path: Path) -> None:
    study = StudyFolder.find("transduction").study("small")
    pairs = DataSets(study, tmp_path)[kind]
    assert pairs == DataSets(study, tmp_path)[kind], "what is kept is what was made"
    for record in list(Transduction(kind, 32).records_of(pairs[:50])):
        source = record["source"].split()
        assert record["target"].split() == (source if kind == "copy" else source[::-1])


def record(*accuracies: float, all_lengths: float = 1.0, part: str = "test") -> dict[str, object]:
    """The record of a run with these accuracies by length."""
    groups = [*(8 * place for place in range(len(accuracies))), "all"]
    scores = {"length": groups, "examples": [10] * len(groups), "coarse accuracy": [*accuracies, all_lengths]}
    return {"run": "x", "scores": {part: scores}}


def test_a_run_is_solved_if_it_is_at_every_length() -> None:
    assert solved([record(1.0, 0.99), record(1.0, 0.98), record(0.995, 1.0)]) == 2


def test_a_verdict_is_met_if_all_seeds_agree_with_it() -> None:
    solution, half, nothing = record(1.0, 1.0), record(1.0, 0.2, all_lengths=0.6), record(0.1, all_lengths=0.1)
    runs = {"all solve": [solution] * 2, "one solves": [solution, half], "none": [half, half], "bad": [half, nothing]}
    assert [name for name in runs if is_met("solved", runs[name])] == ["all solve"]
    assert [name for name in runs if is_met("converges", runs[name])] == ["all solve", "one solves", "none"]
    assert [name for name in runs if is_met("poor", runs[name])] == ["none", "bad"]


def test_curves_are_those_of_the_log_and_known_ones_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    rows = [{"epoch": 1, "loss": 2.0, "validation_coarse accuracy": 0.5, "seconds": 3}, {"best": 1}]
    (tmp_path / "a" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = StudyFolder.find("transduction").study("small")
    run = StudyRun("a", "A", NetworkConfig("LSTM"), TrainingOptions(seed=7), task=Transduction())
    done = StudyResults(study, [run], [{"weights": "w"}], DataSets(study, tmp_path), {}, tmp_path, tmp_path, tmp_path)
    (found,) = curve_records(done, [])
    assert found == {
        "run": "a",
        "row": "A",
        "training": {"seed": 7},
        "weights": "w",
        "epochs": [{"epoch": 1, "loss": 2.0, "validation_coarse accuracy": 0.5}],
    }
    assert list(curve_records(done, [found])) == []


def test_of_two_optimizers_the_one_that_is_better_in_validation_stands_in_the_table() -> None:
    adam = [record(all_lengths=accuracy, part="validation") for accuracy in (0.9, 0.2)]
    rows = {"Adam": adam, "Muon": [record(all_lengths=0.6, part="validation")]}
    assert best_on_validation(rows, ["Adam", "Muon", "not recorded"]) == "Muon"
    assert best_on_validation(rows, ["not recorded"]) == ""
