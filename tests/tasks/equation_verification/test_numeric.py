from __future__ import annotations

import logging

import pytest
from independent_evaluation import value_of

from treemem.tasks.equation_verification.generation.numeric import KINDS, generate_numeric
from treemem.trees.tree import Tree


def test_true_equations_hold_to_two_decimals_and_false_ones_miss_by_a_tenth() -> None:
    forest = generate_numeric(600, seed=2)
    assert len(forest) == len(set(forest)) == 600
    sides = set()
    for tree, label in zip(forest, forest.tree_data["label"], strict=True):
        assert tree.label == "Equality"
        left, right = (value_of(side, []).real for side in tree.children)
        error = abs(left - right)
        assert error <= 0.005 + 1e-9 if label else error >= 0.1 - 0.005 - 1e-9
        assert max(abs(left), abs(right)) <= 3.145
        sides.add([child.label for child in tree.children].index("Number"))
    assert sides == {0, 1}
    numbers = [node.value for tree in forest for node in tree.leaves() if node.value is not None]
    assert all(round(number, 2) == number for number in numbers)


def test_kinds_are_in_equal_parts() -> None:
    forest = generate_numeric(301, seed=2)
    counts = [int((forest.tree_data["kind"] == kind).sum()) for kind in range(len(KINDS))]
    assert sorted(counts) == [100, 100, 101]


def test_a_fifth_is_for_validation_and_one_for_the_test_half_of_each_false() -> None:
    forest = generate_numeric(100, seed=1)
    split, label = forest.tree_data["split"], forest.tree_data["label"]
    assert label[split == "train"].all()
    assert label[split == "validation"].tolist().count(0) == label[split == "test"].tolist().count(0) == 10
    assert (split == "validation").sum() == (split == "test").sum() == 20


def test_too_many_are_said_to_be_too_many(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        forest = generate_numeric(9000)
    assert len(forest) < 9000
    assert f"only {len(forest)} of 9000" in caplog.text


def test_no_two_equations_are_equal_up_to_the_order_of_operands() -> None:
    def operands(tree: Tree) -> object:
        children = [operands(child) for child in tree.children]
        return (tree.label, tree.value, children if tree.label == "Pow" else sorted(children, key=str))

    forest = generate_numeric(4000, seed=12093)
    assert len({str(operands(tree)) for tree in forest}) == len(forest)
