from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from independent_evaluation import differences

from treemem.tasks.equation_verification.generation.editing import EXCHANGE, REPLACE
from treemem.tasks.equation_verification.generation.more_data import training_equations
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

SIZE = 2500


@pytest.fixture(scope="module")
def rewritten() -> Forest:
    return training_equations(SIZE, seed=5, false_steps=3)


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


def test_steps_after_the_edit_take_false_equations_away_from_true_ones(rewritten: Forest) -> None:
    edited = training_equations(SIZE, seed=5)
    shares = [
        np.mean([_num_changes(*pair) > 1 for pair in _false_with_sources(forest)]) for forest in (edited, rewritten)
    ]
    assert shares[0] < 0.05
    assert shares[1] > 0.5


def test_rewritten_false_equations_keep_their_depths_and_do_not_hold(rewritten: Forest) -> None:
    columns = rewritten.tree_data
    edited = np.flatnonzero(columns["source"] >= 0)
    assert (columns["depth"][edited] == columns["depth"][columns["source"][edited]]).all()
    for seed, tree in enumerate(np.flatnonzero(columns["label"] == 0)[::10].tolist()):
        found = np.array(differences(rewritten[tree], seed))
        assert (found > 1e-3).mean() >= 0.7, str(rewritten[tree])


@pytest.mark.parametrize("options", [{"false_steps": 3}, {"edits": (1, 0, 0, 0)}, {"edits": (0, 1, 1, 0)}])
def test_false_equations_are_as_long_as_true_ones_at_each_depth(options: dict[str, object]) -> None:
    forest = training_equations(SIZE, seed=5, **options)  # type: ignore[arg-type]
    label, depth, length = forest.tree_data["label"], forest.tree_data["depth"], np.diff(forest.begin)
    for level in range(4, 8):
        mean = [length[(depth == level) & (label == value)].mean() for value in (0, 1)]
        assert abs(mean[0] / mean[1] - 1) < 0.02


def test_kinds_of_edits_can_be_chosen() -> None:
    forest = training_equations(400, seed=1, edits=(0, 0, 1, 1))
    edits = Counter(forest.tree_data["edit"].tolist())
    assert set(edits) == {-1, REPLACE, EXCHANGE}
    only = training_equations(200, edits=(0, 0, 0, 1))
    pairs = _false_with_sources(only)
    assert pairs
    assert all(first.size == second.size for first, second in pairs)
