from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from independent_evaluation import differences

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.corruption import CorruptionOptions
from treemem.tasks.equation_verification.generation.editing import EXCHANGE, REPLACE
from treemem.tasks.equation_verification.generation.generator import EquationData, generate_equations
from treemem.tasks.equation_verification.generation.more_data import training_equations, with_more_training
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

SIZE = 2500


@pytest.fixture(scope="module")
def rewritten() -> EquationData:
    return generate_equations(SIZE, seed=5, false_steps=3)


def _false_with_sources(forest: Forest) -> list[tuple[Tree, Tree]]:
    source = forest.tree_data["source"]
    return [(forest[int(tree)], forest[int(source[tree])]) for tree in np.flatnonzero(source >= 0)]


def _num_changes(first: Tree, second: Tree) -> int:
    """How many subtrees differ whose parents have the same label and number of children."""
    if first == second:
        return 0
    if (first.label, first.arity) != (second.label, second.arity):
        return 1
    return sum(_num_changes(a, b) for a, b in zip(first.children, second.children, strict=True))


def test_steps_after_the_edit_take_false_equations_away_from_true_ones(rewritten: EquationData) -> None:
    edited = generate_equations(SIZE, seed=5)
    shares = [
        np.mean([_num_changes(*pair) > 1 for pair in _false_with_sources(data.forest)]) for data in (edited, rewritten)
    ]
    assert shares[0] < 0.05
    assert shares[1] > 0.5


def test_rewritten_false_equations_keep_their_depths_and_do_not_hold(rewritten: EquationData) -> None:
    columns = rewritten.forest.tree_data
    edited = np.flatnonzero(columns["source"] >= 0)
    assert (columns["depth"][edited] == columns["depth"][columns["source"][edited]]).all()
    for seed, tree in enumerate(np.flatnonzero(columns["label"] == 0)[::10].tolist()):
        found = np.array(differences(rewritten.forest[tree], seed))
        assert (found > 1e-3).mean() >= 0.7, str(rewritten.forest[tree])


@pytest.mark.parametrize("options", [{"false_steps": 3}, {"edits": (1, 0, 0, 0)}, {"edits": (0, 1, 1, 0)}])
def test_false_equations_are_as_long_as_true_ones_at_each_depth(options: dict[str, object]) -> None:
    forest = training_equations(SIZE, seed=5, **options)  # type: ignore[arg-type]
    label, depth, length = forest.tree_data["label"], forest.tree_data["depth"], np.diff(forest.begin)
    for level in range(4, 8):
        mean = [length[(depth == level) & (label == value)].mean() for value in (0, 1)]
        assert abs(mean[0] / mean[1] - 1) < 0.02


def test_kinds_of_edits_can_be_chosen() -> None:
    forest = with_more_training(generate_equations(200, seed=1).forest, 400, edits=(0, 0, 1, 1))
    edits = Counter(forest.tree_data["edit"][200:].tolist())
    assert set(edits) == {-1, REPLACE, EXCHANGE}
    only = training_equations(200, edits=(0, 0, 0, 1))
    pairs = _false_with_sources(only)
    assert pairs
    assert all(first.size == second.size for first, second in pairs)


def test_steps_are_told_and_saved(rewritten: EquationData, tmp_path: Path) -> None:
    assert "false ones are an edit and 3 steps of rewriting away" in rewritten.card()
    rewritten.save(tmp_path)
    assert EquationData.load(tmp_path).false_steps == 3
    assert "false ones are one edit away" in replace(rewritten, false_steps=0).card()


@pytest.mark.parametrize("steps", [-1, 1.5, True, "two"])
def test_steps_are_a_whole_number(steps: object) -> None:
    with pytest.raises(RecipeError, match="false_steps must be a whole number, 0 or more"):
        training_equations(5, false_steps=steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("edits", [(1, 1, 1), (0, 0, 0, 0), (1, -1, 1, 1), (1, 1, float("nan"), 1), ("a", 1, 1, 1)])
def test_edits_are_four_shares(edits: tuple[float, ...]) -> None:
    with pytest.raises(RecipeError, match="edits must be the shares of grow, shrink, replace, exchange"):
        CorruptionOptions(edits)
