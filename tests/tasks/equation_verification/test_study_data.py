from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.more_data import canonical_equations
from treemem.tasks.equation_verification.study_data import DEEP_VALIDATION, DEEPER, StudyData, part_of
from treemem.tasks.equation_verification.task import EquationDataOptions, EquationVerification
from treemem.trees.forest import Forest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def data(folder: Path) -> StudyData:
    return StudyData(folder, size=600, seed=3, true_per_depth=(3, 1))


def texts(forest: Forest, split: str) -> set[str]:
    return {str(forest[n]) for n in np.flatnonzero(forest.tree_data["split"] == split)}


def test_smaller_parts_are_within_larger_ones_and_leave_validation_and_test_alone(data: StudyData) -> None:
    parts = {share: part_of(data.equations, share) for share in (20, 60)}
    kept = {share: texts(part, "train") for share, part in parts.items()}
    assert kept[20] < kept[60] < texts(data.equations, "train")
    for share, part in parts.items():
        assert len(kept[share]) == round(len(texts(data.equations, "train")) * share / 100)
        for split in ("validation", "test"):
            assert texts(part, split) == texts(data.equations, split)


@pytest.mark.parametrize("name", ["tenfold", "harder", "with sub-expressions"])
def test_other_training_equations_leave_validation_and_test_alone(data: StudyData, name: str) -> None:
    forest = data.forests([name])[name]
    for split in ("validation", "test"):
        assert texts(forest, split) == texts(data.equations, split)
    own, first = texts(forest, "train"), texts(data.equations, "train")
    if name == "harder":
        assert len(own) == len(first)
        true = data.equations.tree_data["label"] == 1
        assert own & first == texts(data.equations[true], "train")
    else:
        assert own > first
        assert name != "tenfold" or len(own) == 10 * len(first)


@pytest.mark.parametrize("name", ["20 percent", "harder", "tenfold", "with sub-expressions"])
def test_sources_are_true_equations_of_the_same_depth(data: StudyData, name: str) -> None:
    tree_data = data.forests([name])[name].tree_data
    edited = tree_data["source"] >= 0
    source = tree_data["source"][edited]
    assert (tree_data["label"][edited] == 0).all()
    assert (tree_data["label"][source] == 1).all()
    if name != "harder":  # whose steps of rewriting may come from an equation that was left out
        assert edited.any()
    assert (tree_data["depth"][source] == tree_data["depth"][edited]).all()


def test_deep_equations_are_in_no_other_set(data: StudyData) -> None:
    table = ExpressionTable()
    deep = canonical_equations(table, data.deep_validation())
    assert len(deep) == len(data.deep_validation()) == 36
    assert not deep & canonical_equations(table, data.equations)
    assert set(data.deep_validation().tree_data["depth"].tolist()) == set(range(8, 14))


def test_published_trials_were_scored_on_thousands_of_deep_equations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}

    def note(self: StudyData, name: str, count: int, depths: range, seed: int) -> None:
        asked[name] = 2 * count * len(depths)

    monkeypatch.setattr(StudyData, "_deep", note)
    data = StudyData(tmp_path, size=10)
    data.deep_validation()
    data.deeper()
    assert asked == {DEEP_VALIDATION: 6000, DEEPER: 2800}


def test_a_folder_of_other_equations_is_refused(data: StudyData, folder: Path) -> None:
    for size, seed in ((600, 4), (500, 3)):
        with pytest.raises(RecipeError, match="600 of seed 3, generator version 1"):
            StudyData(folder, size=size, seed=seed)
    card = (folder / "harder" / "CARD.md").read_text(encoding="utf-8")
    assert "one edit" not in card
    assert "3 steps of rewriting after an edit" in card


def test_a_recipe_can_ask_for_the_equations_of_a_study(data: StudyData) -> None:
    tenfold = data.forests(["tenfold, branches"])["tenfold, branches"]
    size = int((tenfold.tree_data["split"] == "train").sum())
    options = EquationDataOptions(size=600, seed=3, training_size=size, branches=True)
    assert list(EquationVerification().make_data(options).forest) == list(tenfold)


def test_what_was_made_is_kept_and_checked(data: StudyData, folder: Path) -> None:
    again = StudyData(folder, size=600, seed=3)
    assert texts(again.equations, "test") == texts(data.equations, "test")
    (folder / "data" / "equations.json").write_text('{"version": "1", "seed": 3, "digest": "other"}')
    with pytest.raises(RecipeError, match="not those that were saved"):
        StudyData(folder, size=600, seed=3)
