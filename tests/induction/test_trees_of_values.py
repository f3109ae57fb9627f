"""Trees from what networks say of their tokens: distances, values at which a constituent splits, and pointers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from induction.random_trees import BINARY_TREES, SENTENCES, leaves

from treemem.errors import GraphError
from treemem.induction import (
    tree_from_distances,
    tree_from_pointer_probabilities,
    tree_from_pointers,
    tree_from_splits,
    tree_spans,
)
from treemem.trees.formats.brackets import CONSTITUENT, parse_brackets
from treemem.trees.tree import Tree

FEW = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # many ties
SLOTS = 4


def greedy_parse(distances: list[float], words: list[str]) -> Tree:
    """The parser as it is defined, by recursion."""
    if len(words) == 1:
        return Tree(words[0])
    split = distances.index(max(distances))
    right = Tree(words[split])
    if words[split + 1 :]:
        right = Tree(CONSTITUENT, (right, greedy_parse(distances[split + 1 :], words[split + 1 :])))
    if not split:
        return right
    return Tree(CONSTITUENT, (greedy_parse(distances[:split], words[:split]), right))


def split_at_largest(values: list[float], words: list[str]) -> Tree:
    """The tree as it is defined, by recursion."""
    if len(words) == 1:
        return Tree(words[0])
    split = 1 + values[1:].index(max(values[1:]))
    parts = (slice(split), slice(split, None))
    return Tree(CONSTITUENT, [split_at_largest(values[part], words[part]) for part in parts])


def algorithm_2(depths: list[int], words: list[str]) -> Tree:
    """The loop as the paper's appendix has it, one reduction at a time, from a first pointer above all slots."""
    buffer = [SLOTS, *depths[1:]]
    stack: list[Tree] = []

    def reduce() -> None:
        right, left = stack.pop(), stack.pop()
        stack.append(Tree(CONSTITUENT, (left, right)))

    for step, word in enumerate(words):
        reductions = buffer[step] - buffer[step - 1] + 1 if step else 0
        while reductions > 0 and len(stack) >= 2:
            reduce()
            reductions -= 1
        stack.append(Tree(word))
    while len(stack) > 1:
        reduce()
    return stack[0]


def of_slots(pointers: Any, tokens: Any) -> Tree:
    return tree_from_pointers(pointers, tokens, slots=SLOTS)


@pytest.mark.parametrize(
    ("make", "by_definition", "values"),
    [
        (tree_from_distances, greedy_parse, FEW),
        (tree_from_distances, greedy_parse, st.floats(allow_nan=False)),
        (tree_from_splits, split_at_largest, FEW),
        (of_slots, algorithm_2, st.integers(0, SLOTS - 1)),
    ],
)
@given(words=SENTENCES, data=st.data())
def test_the_tree_is_that_of_the_definition_and_keeps_the_words_in_order(
    make: Callable[..., Tree],
    by_definition: Callable[..., Tree],
    values: st.SearchStrategy[Any],
    words: list[str],
    data: st.DataObject,
) -> None:
    drawn = data.draw(st.lists(values, min_size=len(words), max_size=len(words)))
    tree = make(drawn, words)
    assert tree == by_definition(drawn, words)
    assert leaves(tree) == words
    assert len(tree_spans(tree)) == len(words) - 1


@given(tree=BINARY_TREES)
def test_every_binary_tree_has_values_at_which_it_splits(tree: Tree) -> None:
    def heights(node: Tree) -> tuple[int, list[int]]:
        """The height of a tree, and for each leaf that of the node at which it begins the second child."""
        if not node.children:
            return 0, [0]
        (left_height, left), (right_height, right) = map(heights, node.children)
        height = 1 + max(left_height, right_height)
        return height, [*left, height, *right[1:]]

    assert tree_from_splits(heights(tree)[1], leaves(tree)) == tree


def test_distances_may_be_tensors_with_gradients_in_a_list_too() -> None:
    distances = torch.tensor([0.1, 0.9, 0.5], requires_grad=True)
    tree = tree_from_distances([0.1, 0.9, 0.5], ["a", "b", "c"])
    for values in (distances, list(distances)):
        assert tree_from_distances(values, ["a", "b", "c"]) == tree


@pytest.mark.parametrize(
    ("pointers", "text"),
    [
        ([2, 2, 2, 2], "(X (X (X a b) c) d)"),
        ([3, 3, 2, 1], "(X a (X b (X c d)))"),
        ([0, 3, 2, 3], "(X (X a (X b c)) d)"),
        ([9, 9, 0, 0], "(X a (X (X b c) d))"),
        ([0, 0, 9, 0], "(X (X a b) (X c d))"),
    ],
)
def test_pointers_worked_by_hand(pointers: list[int], text: str) -> None:
    assert tree_from_pointers(pointers, list("abcd")) == parse_brackets(text)


def test_the_first_pointer_says_nothing_and_probabilities_point_at_the_first_of_equally_likely_slots() -> None:
    words = list("abcd")
    assert len({tree_from_pointers([first, 2, 1, 1], words, slots=3) for first in (-1, 0, 3, 99)}) == 1
    table = np.array([[0.0, 0, 0], [0, 0, 1], [0, 0.5, 0.5], [0.25, 0.5, 0.25]])
    assert tree_from_pointer_probabilities(table, words) == tree_from_pointers([0, 2, 1, 1], words)


@pytest.mark.parametrize("make", [tree_from_distances, tree_from_splits, tree_from_pointers])
def test_a_chain_of_20000_tokens_is_a_tree(make: Callable[..., Tree]) -> None:
    for values in (np.arange(20_000), np.arange(20_000)[::-1], np.zeros(20_000, int)):
        assert make(values, ["w"] * 20_000).height == 19_999


@pytest.mark.parametrize(
    ("make", "values", "tokens", "named"),
    [
        (tree_from_distances, [1.0], ["a", "b"], r"2 tokens need as many distances, not float64 \(1,\)"),
        (tree_from_distances, [[1.0, 2.0]], ["a", "b"], "as many distances"),
        (tree_from_distances, ["x", "y"], ["a", "b"], "as many distances"),
        (tree_from_distances, [1.0, float("nan")], ["a", "b"], r"distance of token 1 \('b'\) is not a number"),
        (tree_from_distances, [], [], "no tokens"),
        (tree_from_distances, [[1.0, 2.0], [3.0]], ["a", "b"], "distances, not rows of unequal length"),
        (tree_from_splits, [0, 1, 2], ["a", "b"], r"2 tokens need as many values, not int64 \(3,\)"),
        (tree_from_splits, [0, np.nan], ["a", "b"], r"the value of token 1 \('b'\) is not a number"),
        (tree_from_splits, [], [], "no tokens"),
        (of_slots, [1, 0], ["a"], r"1 tokens need as many whole numbers as pointers, not int64 \(2,\)"),
        (of_slots, [0.5], ["a"], "whole numbers"),
        (of_slots, [[0]], ["a"], "whole numbers"),
        (of_slots, [], [], "no tokens"),
        (of_slots, [[0, 1], [2]], ["a", "b"], "pointers, not rows of unequal length"),
        (of_slots, [0, 1], "ab", "not the one string 'ab'"),
        (of_slots, [0, SLOTS], ["a", "b"], r"must be slots, 0 to 3; these are 4 to 4"),
        (of_slots, [0, -1], ["a", "b"], r"must be slots, 0 to 3; these are -1 to -1"),
        (tree_from_pointer_probabilities, [[0.0, 1.0]], ["a", "b"], r"\[2, slots\], not float64 \[1, 2\]"),
        (tree_from_pointer_probabilities, [0.0, 1.0], ["a", "b"], "slots"),
        (tree_from_pointer_probabilities, np.zeros((2, 0)), ["a", "b"], "slots"),
        (tree_from_pointer_probabilities, [["x"], ["y"]], ["a", "b"], "slots"),
        (tree_from_pointer_probabilities, [[0.0, 1.0], [1.0]], ["a", "b"], "not rows of unequal length"),
        (
            tree_from_pointer_probabilities,
            [[0.0, 1.0], [0.0, float("nan")]],
            ["a", "b"],
            r"token 1 \('b'\) are not finite",
        ),
    ],
)
def test_values_that_make_no_tree_are_told(make: Callable[..., Tree], values: Any, tokens: Any, named: str) -> None:
    with pytest.raises(GraphError, match=named):
        make(values, tokens)
