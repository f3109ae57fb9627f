"""Compositions after each token."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from tree_strategies import random_forest

from treemem.trees.forest import Forest
from treemem.trees.reductions import token_reductions
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree

Nested = str | list["Nested"]


def parts(tree: Tree, form: TokenForm) -> Nested:
    """A node as the list of its parts in the order in which they are written."""
    children: list[Nested] = [parts(child, form) for child in tree.children]
    if not children:
        return tree.label
    if form == "leaves":
        return children
    if form == "preorder":
        return [tree.label, *children]
    if form == "bracketed leaves":
        return ["(", *children, ")"]
    if form == "brackets":
        return ["(", tree.label, *children, ")"]
    if form == "infix" and len(children) == 2:
        return ["(", children[0], tree.label, children[1], ")"]
    with_commas = [each for child in children for each in (",", child)][1:]
    return [tree.label, "(", *with_commas, ")"]


def compositions(nested: Nested, found: list[int]) -> None:
    """Append a number for each token; a part that is not the first one is composed with what is before it."""
    if isinstance(nested, str):
        found.append(0)
        return
    for place, part in enumerate(nested):
        compositions(part, found)
        found[-1] += place > 0


@pytest.mark.parametrize("form", get_args(TokenForm))
def test_the_parts_of_a_node_are_composed_from_left_to_right(form: TokenForm) -> None:
    forest = random_forest(seed=3, num_trees=30, size=14)
    found, begin = token_reductions(forest, form)
    expected: list[int] = []
    for tree in forest:
        compositions(parts(tree, form), expected)
    assert found.tolist() == expected
    assert begin.tolist() == forest.tokens(form).begin.tolist()
    length = np.diff(begin)
    np.testing.assert_array_equal(np.add.reduceat(found, begin[:-1]), length - 1)


def test_sequences_are_composed_from_left_to_right() -> None:
    found, begin = token_reductions(Forest.from_sequences([["a", "b", "c"], [], ["a"]]), "leaves")
    assert found.tolist() == [0, 1, 1, 0]
    assert begin.tolist() == [0, 3, 3, 4]
    assert token_reductions(Forest.from_trees([]), "function")[0].tolist() == []
