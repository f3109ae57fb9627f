from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from induction.random_trees import BINARY_TREES, SENTENCES, leaves

from treemem.errors import GraphError
from treemem.induction import tree_from_splits
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.tree import Tree


def split_at_largest(values: list[float], words: list[str]) -> Tree:
    """The tree as it is defined, by recursion."""
    if len(words) == 1:
        return Tree(words[0])
    split = 1 + values[1:].index(max(values[1:]))
    parts = (slice(split), slice(split, None))
    return Tree(CONSTITUENT, [split_at_largest(values[part], words[part]) for part in parts])


def heights_of_splits(tree: Tree) -> tuple[int, list[int]]:
    """The height of a tree, and for each leaf that of the node at which it begins the second child."""
    if not tree.children:
        return 0, [0]
    (left_height, left), (right_height, right) = (heights_of_splits(child) for child in tree.children)
    height = 1 + max(left_height, right_height)
    return height, [*left, height, *right[1:]]


@given(words=SENTENCES, data=st.data())
def test_the_largest_value_splits_first(words: list[str], data: st.DataObject) -> None:
    few = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # many ties
    values = data.draw(st.lists(few, min_size=len(words), max_size=len(words)))
    assert tree_from_splits(values, words) == split_at_largest(values, words)


@given(tree=BINARY_TREES)
def test_every_binary_tree_has_values(tree: Tree) -> None:
    assert tree_from_splits(heights_of_splits(tree)[1], leaves(tree)) == tree


def test_a_long_chain_does_not_recurse() -> None:
    tree = tree_from_splits(np.arange(20_000), ["a"] * 20_000)
    assert len(leaves(tree)) == 20_000


def test_values_that_make_no_tree_are_told() -> None:
    for values, tokens, named in (
        ([0, 1, 2], ["a", "b"], r"2 tokens need as many values, not int64 \(3,\)"),
        ([0, np.nan], ["a", "b"], r"the value of token 1 \('b'\) is not a number"),
        ([], [], "there are no tokens"),
    ):
        with pytest.raises(GraphError, match=named):
            tree_from_splits(values, tokens)
