"""Pairs of trees: one tree with a joining root, or two trees one after the other."""

import numpy as np
import pytest

from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.pairs import PAIR, separate_pairs
from treemem.trees.tree import Tree

FIRST, SECOND = Tree("and", [Tree("a"), Tree("b")]), Tree("not", [Tree("a")])


def test_joined_pairs_and_adjacent_trees_are_the_same_pairs() -> None:
    joined = Forest.from_trees([Tree(PAIR, [FIRST, SECOND]), Tree(PAIR, [SECOND, SECOND])])
    joined = joined.with_data(tree_data={"target": np.array([3, 5])})
    adjacent = Forest.from_trees([FIRST, SECOND, SECOND, SECOND])
    adjacent = adjacent.with_data(tree_data={"target": np.array([3, 3, 5, 5])})
    for given in (joined, adjacent):
        trees, data = separate_pairs(given, "sentences")
        assert list(trees) == [FIRST, SECOND, SECOND, SECOND]
        assert data["target"].tolist() == [3, 5]


def test_a_tree_without_a_second_one_is_told() -> None:
    with pytest.raises(GraphError, match="3 formulas make no pairs; the two of a pair must be adjacent"):
        separate_pairs(Forest.from_trees([FIRST, SECOND, FIRST]), "formulas")
