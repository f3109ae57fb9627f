from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from induction.random_trees import SENTENCES, leaves

from treemem.errors import GraphError, RecipeError
from treemem.induction import (
    balanced_branching,
    baseline_trees,
    left_branching,
    random_branching,
    right_branching,
)
from treemem.trees.formats.brackets import parse_brackets


@given(words=SENTENCES)
def test_every_baseline_is_a_binary_tree_of_the_words(words: list[str]) -> None:
    for branching in ("left", "right", "balanced", "random"):
        (tree,) = baseline_trees([words], branching)
        assert leaves(tree) == words
        assert all(node.arity in (0, 2) for node in tree.preorder())
    assert balanced_branching(words).height == int(np.ceil(np.log2(len(words))))


def test_the_shapes_are_those_of_their_names() -> None:
    assert left_branching(list("abcd")) == parse_brackets("(X (X (X a b) c) d)")
    assert right_branching(list("abcd")) == parse_brackets("(X a (X b (X c d)))")
    assert balanced_branching(list("abcde")) == parse_brackets("(X (X (X a b) c) (X d e))")
    assert left_branching(["w"] * 20_000).height == right_branching(["w"] * 20_000).height == 19_999


def test_a_random_constituent_is_split_anywhere_with_the_same_probability() -> None:
    counts = Counter(str(tree) for tree in baseline_trees([list("abcd")] * 6000, "random", seed=1))
    # The first split is at one of three places; two of them leave three words, which are split in two ways.
    expected = {
        "(X (X a b) (X c d))": 2000,
        "(X a (X b (X c d)))": 1000,
        "(X a (X (X b c) d))": 1000,
        "(X (X (X a b) c) d)": 1000,
        "(X (X a (X b c)) d)": 1000,
    }
    assert counts.keys() == expected.keys()
    assert all(abs(counts[text] - number) < 5 * number**0.5 for text, number in expected.items())


def test_the_seed_fixes_random_trees() -> None:
    sentences = [list("abcdefgh")] * 5
    trees = baseline_trees(sentences, "random", seed=3)
    assert trees == baseline_trees(sentences, "random", seed=3) != baseline_trees(sentences, "random", seed=4)
    assert len(set(trees)) > 1
    assert trees[0] == random_branching(sentences[0], 3)


def test_a_baseline_that_is_none_is_told() -> None:
    with pytest.raises(RecipeError, match="there is no branching 'up'; there are left, right, balanced, random"):
        baseline_trees([["a"]], "up")
    with pytest.raises(GraphError, match="no tokens"):
        left_branching([])
