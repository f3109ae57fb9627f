from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from independent_evaluation import assert_labels_hold

from treemem.tasks.equation_verification.generation.corruption import (
    EXCHANGE,
    REPLACE,
    CorruptionOptions,
    Editor,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import training_equations
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

SIZE = 2500


@pytest.fixture(scope="module")
def rewritten() -> Forest:
    return training_equations(SIZE, seed=5, corruption=CorruptionOptions(steps=3, even_counts=True))


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
    assert_labels_hold(rewritten[columns["label"] == 0], every=10)


@pytest.mark.parametrize("options", [{"steps": 3}, {"edits": (1, 0, 0, 0)}, {"edits": (0, 1, 1, 0)}])
def test_false_equations_are_as_long_as_true_ones_at_each_depth(options: dict[str, Any]) -> None:
    forest = training_equations(SIZE, seed=5, corruption=CorruptionOptions(even_counts=True, **options))
    label, depth, length = forest.tree_data["label"], forest.tree_data["depth"], np.diff(forest.begin)
    for level in range(4, 8):
        mean = [length[(depth == level) & (label == value)].mean() for value in (0, 1)]
        assert abs(mean[0] / mean[1] - 1) < 0.02


def test_kinds_of_edits_can_be_chosen() -> None:
    forest = training_equations(400, seed=1, corruption=CorruptionOptions((0, 0, 1, 1)))
    assert set(forest.tree_data["edit"].tolist()) == {-1, REPLACE, EXCHANGE}


def test_powers_and_cofunctions_are_exchanged() -> None:
    table = ExpressionTable()
    equation = table.from_tree(parse_equation("sin(x^2) = tan(pi)"))
    editor = Editor(table, [equation])
    expected = {1: "cos(x^2) = tan(pi)", 2: "sin(2^x) = tan(pi)", 3: "sin(x^2) = tan(pi)", 5: "sin(x^2) = cot(pi)"}
    for position, text in expected.items():
        edited = editor.edit(equation, EXCHANGE, position, random.Random(0))
        assert edited == table.from_tree(parse_equation(text))


def test_labels_are_drawn_as_often_as_they_occur() -> None:
    table = ExpressionTable()
    editor = Editor(table, [table.from_tree(parse_equation("sin(sin(cos(x))) = sin(sin(sin(cos(x))))"))])
    equation = table.from_tree(parse_equation("tan(x) = x"))
    edited = [editor.edit(equation, REPLACE, 1, random.Random(seed)) for seed in range(2000)]
    drawn = Counter(table.label[table.children[equation][0]] for equation in edited)
    assert "tan" not in drawn
    assert drawn["sin"] / 2000 == pytest.approx(6 / 12, abs=0.05)
    assert drawn["cos"] / 2000 == pytest.approx(3 / 12, abs=0.05)
