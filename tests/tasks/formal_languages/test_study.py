"""What the page of results says of the runs of a study."""

from __future__ import annotations

from typing import get_args

from treemem.runs.study_file import StudyFolder
from treemem.tasks.formal_languages.languages import Kind
from treemem.tasks.formal_languages.published import SCORES, between, kinds_by_level, published, worst_length


def record(kind: str, *accuracies: float) -> dict[str, object]:
    values = [*accuracies, accuracies[0]]
    scores = {
        "length": [*(20 * place for place in range(1, len(values))), "all"],
        "examples": [10] * len(values),
        **dict.fromkeys(("symbol accuracy", "worst length"), values),
        "sequence accuracy": [value / 2 for value in values],
    }
    return {"run": "x", "task": {"kind": kind}, "scores": {"test": scores}}


def test_accuracies_are_means_over_the_lengths_of_each_run() -> None:
    runs = [record("parity", 1.0, 1.0, 0.9, 0.8, 0.7, 0.1), record("parity", 1.0, 0.8, 0.7, 0.6, 0.5, 0.1)]
    assert between(runs, 0, 40) == "95.00 ± 7.07"
    assert between(runs, 40, 100) == "70.00 ± 14.14"
    assert worst_length(runs, 100) == "70.00"
    assert between([record("an_bn", 1.0, 1.0)], 0, 40) == "50.00"


def test_studies_of_the_small_recipe_have_every_kind_once() -> None:
    folder = StudyFolder.find("formal_languages")
    small = [study for study in map(folder.study, folder.studies) if study.recipe == "small"]
    kinds = [kind for study in small for kind in study.variants]
    assert sorted(kinds) == sorted(get_args(Kind))
    assert all(
        changes["data"] == kind for name in folder.studies for kind, changes in folder.study(name).variants.items()
    )
    assert {kind for own in kinds_by_level().values() for kind in own} == {*kinds}


def test_published_scores_are_of_known_kinds() -> None:
    assert {*SCORES} <= {*get_args(Kind)}
    assert published("reverse_string", "Stack-RNN") == "100.0"
    assert published("an_bn", "LSTM") == ""
