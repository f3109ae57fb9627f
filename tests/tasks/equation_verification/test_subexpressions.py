from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from independent_evaluation import assert_labels_hold

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import EquationData, generate_equations
from treemem.tasks.equation_verification.generation.subexpressions import subexpression_pairs
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

COUNT = 150


@pytest.fixture(scope="module")
def data() -> EquationData:
    return generate_equations(700, seed=5)


@pytest.fixture(scope="module")
def pairs(data: EquationData) -> Forest:
    return subexpression_pairs(data.forest, COUNT, seed=1)


def test_half_of_the_equations_of_each_depth_are_true(pairs: Forest) -> None:
    columns = pairs.tree_data
    assert len(pairs) == 2 * COUNT
    assert (pairs.height()[pairs.begin[1:] - 1] == columns["depth"]).all()
    assert (np.diff(columns["depth"]) >= 0).all()
    counts = Counter(zip(columns["depth"].tolist(), columns["label"].tolist(), strict=True))
    assert {depth for depth, _ in counts} <= set(range(2, 8))
    assert all(count == counts[depth, 1 - label] for (depth, label), count in counts.items())


def test_labels_hold_by_another_evaluator(pairs: Forest) -> None:
    assert_labels_hold(pairs)


def test_sides_are_inner_subexpressions_of_the_equations_for_training(data: EquationData, pairs: Forest) -> None:
    inner = {
        node
        for tree in data.forest[data.forest.tree_data["split"] == "train"]
        for node in tree.preorder()
        if node.label != "Equality" and not node.is_leaf
    }
    assert all(side in inner for equation in pairs for side in equation.children)


def test_no_equation_is_equal_to_a_known_one_or_to_another(data: EquationData, pairs: Forest) -> None:
    table = ExpressionTable()
    known, found = table.canonical_equations(data.forest), table.canonical_equations(pairs)
    assert len(found) == len(pairs)
    assert not known & found


def test_false_equations_look_like_the_true_ones(pairs: Forest) -> None:
    true, false = (pairs[pairs.tree_data["label"] == label] for label in (1, 0))
    assert Counter(tree.children[0] for tree in true) == Counter(tree.children[0] for tree in false)
    heights = [Counter((tree.height, tree.children[1].height) for tree in part) for part in (true, false)]
    assert heights[0] == heights[1]
    assert abs(np.diff(false.begin).mean() / np.diff(true.begin).mean() - 1) < 0.03


def test_equal_subexpressions_are_found_across_equations() -> None:
    texts = ["tan(sin(x)) = tan(2*x)", "cos(sin(x)*1) = 3", "cot((2*x)*1) = 3"]
    equations = Forest.from_trees([parse_equation(text) for text in texts], tree_data={"split": ["train"] * 3})
    pairs = subexpression_pairs(equations, 2)
    a, b, c, d = (parse_equation(f"{text} = 0").children[0] for text in ("sin(x)", "sin(x)*1", "2*x", "(2*x)*1"))
    found = {(frozenset(tree.children), int(pairs.tree_data["label"][place])) for place, tree in enumerate(pairs)}
    true, false = ({sides for sides, label in found if label == value} for value in (1, 0))
    assert true == {frozenset((a, b)), frozenset((c, d))}
    assert len(false) == 2
    assert all(len(sides & {a, b}) == len(sides & {c, d}) == 1 for sides in false)
