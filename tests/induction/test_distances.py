from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from induction.random_trees import SENTENCES, leaves

from treemem.errors import GraphError
from treemem.induction import tree_from_distances, tree_spans
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.tree import Tree


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


@given(words=SENTENCES, data=st.data())
def test_the_tree_is_the_greedy_parsers_and_keeps_the_words_in_order(words: list[str], data: st.DataObject) -> None:
    few = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # many ties
    values = data.draw(st.sampled_from([few, st.floats(allow_nan=False)]))
    distances = data.draw(st.lists(values, min_size=len(words), max_size=len(words)))
    tree = tree_from_distances(distances, words)
    assert tree == greedy_parse(distances, words)
    assert leaves(tree) == words
    assert len(tree_spans(tree)) == len(words) - 1


def test_distances_may_be_tensors_with_gradients_in_a_list_too() -> None:
    distances = torch.tensor([0.1, 0.9, 0.5], requires_grad=True)
    tree = tree_from_distances([0.1, 0.9, 0.5], ["a", "b", "c"])
    for values in (distances, list(distances)):
        assert tree_from_distances(values, ["a", "b", "c"]) == tree


@pytest.mark.parametrize("distances", [np.arange(20_000), -np.arange(20_000), np.zeros(20_000)])
def test_a_chain_of_20000_tokens_is_a_tree(distances: np.ndarray) -> None:
    assert tree_from_distances(distances, ["w"] * 20_000).height == 19_999


@pytest.mark.parametrize(
    ("distances", "tokens", "message"),
    [
        ([1.0], ["a", "b"], r"2 tokens need as many distances, not float64 \(1,\)"),
        ([[1.0, 2.0]], ["a", "b"], "as many distances"),
        (["x", "y"], ["a", "b"], "as many distances"),
        ([1.0, float("nan")], ["a", "b"], r"distance of token 1 \('b'\) is not a number"),
        ([], [], "no tokens"),
        ([[1.0, 2.0], [3.0]], ["a", "b"], "2 tokens need as many distances, not rows of unequal length"),
    ],
)
def test_wrong_distances_are_told(distances: list[Any], tokens: list[str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        tree_from_distances(distances, tokens)
