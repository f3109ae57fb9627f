from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from induction.random_trees import SENTENCES, leaves

from treemem.errors import GraphError
from treemem.induction import tree_from_pointer_probabilities, tree_from_pointers, tree_spans
from treemem.trees.brackets import CONSTITUENT, parse_brackets
from treemem.trees.tree import Tree


def algorithm_2(depths: list[int], words: list[str], slots: int) -> Tree:
    """The loop as the paper's appendix has it, one reduction at a time, from a first pointer above all slots."""
    buffer = [slots, *depths[1:]]
    stack: list[Tree] = []
    for step, word in enumerate(words):
        if step:
            reductions = buffer[step] - buffer[step - 1] + 1
            while reductions > 0 and len(stack) >= 2:
                right, left = stack.pop(), stack.pop()
                stack.append(Tree(CONSTITUENT, (left, right)))
                reductions -= 1
        stack.append(Tree(word))
    while len(stack) > 1:
        right, left = stack.pop(), stack.pop()
        stack.append(Tree(CONSTITUENT, (left, right)))
    return stack[0]


@given(words=SENTENCES, data=st.data())
def test_the_tree_is_the_papers_and_keeps_the_words_in_order(words: list[str], data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 6))
    depths = data.draw(st.lists(st.integers(0, slots - 1), min_size=len(words), max_size=len(words)))
    tree = tree_from_pointers(depths, words, slots=slots)
    assert tree == algorithm_2(depths, words, slots)
    assert leaves(tree) == words
    assert len(tree_spans(tree)) == len(words) - 1


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


def test_the_first_pointer_says_nothing() -> None:
    trees = {tree_from_pointers([first, 2, 1, 1], list("abcd"), slots=3) for first in (-1, 0, 3, 99)}
    assert len(trees) == 1


def test_probabilities_point_at_the_first_of_equally_likely_slots() -> None:
    table = np.array([[0.0, 0, 0], [0, 0, 1], [0, 0.5, 0.5], [0.25, 0.5, 0.25]])
    assert tree_from_pointer_probabilities(table, list("abcd")) == tree_from_pointers([0, 2, 1, 1], list("abcd"))


def test_a_chain_of_20000_tokens_is_a_tree() -> None:
    tokens = ["w"] * 20_000
    assert tree_from_pointers(np.zeros(20_000, int), tokens).height == 19_999
    assert tree_from_pointers(np.arange(20_000)[::-1], tokens).height == 19_999


@pytest.mark.parametrize(
    ("pointers", "tokens", "message"),
    [
        ([1, 0], ["a"], r"1 tokens need as many whole numbers as pointers, not int64 \(2,\)"),
        ([0.5], ["a"], "whole numbers"),
        ([[0]], ["a"], "whole numbers"),
        ([], [], "no tokens"),
        ([[0, 1], [2]], ["a", "b"], "2 tokens need as many whole numbers as pointers, not rows of unequal length"),
        ([0, 1], "ab", "not the one string 'ab'"),
        ([0, 3], ["a", "b"], r"must be slots, 0 to 2; these are 3 to 3"),
        ([0, -1], ["a", "b"], r"must be slots, 0 to 2; these are -1 to -1"),
    ],
)
def test_wrong_pointers_are_told(pointers: list[Any], tokens: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        tree_from_pointers(pointers, tokens, slots=3)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([[0.0, 1.0]], r"2 tokens need probabilities \[2, slots\], not float64 \[1, 2\]"),
        ([0.0, 1.0], "slots"),
        (np.zeros((2, 0)), "slots"),
        ([["x"], ["y"]], "slots"),
        ([[0.0, 1.0], [1.0]], r"2 tokens need probabilities \[2, slots\], not rows of unequal length"),
        ([[0.0, 1.0], [0.0, float("nan")]], r"at token 1 \('b'\) are not finite"),
    ],
)
def test_wrong_probabilities_are_told(probabilities: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        tree_from_pointer_probabilities(probabilities, ["a", "b"])
