from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from toy_task import MoreX, toy_data

from treemem.data.examples import PADDING, Examples, SequenceExamples, StreamExamples, flat_tokens
from treemem.data.loader import BatchOptions
from treemem.errors import RecipeError, VocabularyError
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "c"], [("text", 1)])


def flat(*texts: str) -> Forest:
    """Each text as a root over one leaf a letter."""
    return Forest.from_trees([Tree("text", [Tree(letter) for letter in text]) for text in texts])


def of_texts(kind: type[SequenceExamples], *texts: str, each: int = 1, **fields: int) -> SequenceExamples:
    count = len(texts) // each
    group, labelled = np.arange(count), np.ones(count, bool)
    return kind(flat(*texts), each, {"number": np.arange(count) * 10}, group, labelled, **fields)  # type: ignore[arg-type]


def test_targets_of_nodes_follow_their_examples_in_any_order() -> None:
    forest = toy_data(12)
    depth = forest.height()
    pairs = Examples(
        forest, 2, {"label": np.arange(6), "height": depth}, np.zeros(6, int), np.ones(6, bool),
        node_targets=frozenset({"height"}),
    )  # fmt: skip
    for chosen in ([4, 0, 3], [2], [], [1, 1]):
        found = pairs.targets_of(np.array(chosen, int))
        trees = [tree for example in chosen for tree in (2 * example, 2 * example + 1)]
        expected = [depth[forest.begin[tree] : forest.begin[tree + 1]] for tree in trees]
        np.testing.assert_array_equal(found["height"], np.concatenate([np.empty(0), *expected]))
        assert found["label"].tolist() == chosen


def test_the_digest_is_that_of_runs_before() -> None:
    """Runs are resumed, and records found again, by it."""
    digest = "b0d15174e71a475fd29e8b60b015e5de8e45744cfc8e0e41824136e3895e3cca"
    examples = MoreX().examples(toy_data(20))
    assert examples.digest() == digest
    for changed in (
        {"group": examples.group + 1},
        {"split": None},
        {"targets": {"label": 1 - examples.targets["label"]}},
    ):
        assert dataclasses.replace(examples, **changed).digest() != digest


def test_targets_are_known_only_if_every_example_of_the_batch_has_them() -> None:
    examples = MoreX().examples(Forest.from_trees([Tree("x"), Tree("y")], tree_data={"label": [1, -1]}))
    first, both = (
        next(iter(examples.loader(MoreX().vocabulary, np.array(chosen)).batches())) for chosen in ([0], [0, 1])
    )
    assert examples.known_targets(first)["label"].tolist() == [1]
    assert examples.known_targets(both) == {}
    with pytest.raises(RecipeError, match=r"example 2 of \d+ has no label"):
        examples.batch_targets(both)


def test_the_index_of_subtrees_is_made_once_for_a_vocabulary() -> None:
    examples = MoreX().examples(toy_data(5))
    assert examples.index(MoreX().vocabulary) is examples.index(MoreX().vocabulary)


def test_the_second_sequence_of_a_pair_is_the_target() -> None:
    pairs = of_texts(SequenceExamples, "abc", "b", "a", "ccc", "", "ab", each=2)
    (batch,) = pairs.loader(VOCABULARY, np.array([2, 0, 1])).batches()
    assert batch.token.tolist() == [[0, 0, 0], [0, 1, 2], [0, 0, 0]]
    assert batch.lengths.tolist() == [0, 3, 1]
    targets = pairs.batch_targets(batch)
    assert targets["number"].tolist() == [20, 0, 10]
    assert targets["tokens"].tolist() == [[0, 1, PADDING], [1, PADDING, PADDING], [2, 2, 2]]


def test_the_target_of_a_stream_is_its_next_token() -> None:
    stream = of_texts(StreamExamples, "abc", "cb", "ac", steps=2)
    batches = list(stream.loader(VOCABULARY, None, BatchOptions(batch_size=2)).batches())
    assert [batch.token.tolist() for batch in batches] == [[[0, 1], [2, 1]], [[2], [0]]]
    targets = [stream.batch_targets(batch)["tokens"].tolist() for batch in batches]
    assert targets == [[[1, 2], [1, 0]], [[2], [2]]]
    assert [batch.continues for batch in batches] == [False, True]
    assert stream.targets_of(np.array([0])) == {}


def test_sequences_are_not_counted_by_nodes() -> None:
    for kind in (SequenceExamples, StreamExamples):
        with pytest.raises(RecipeError, match="nodes_per_batch counts the nodes of trees, and these are sequences"):
            of_texts(kind, "abc", "cb").loader(VOCABULARY, None, BatchOptions(nodes_per_batch=2))


def test_an_unknown_token_is_named_or_read_as_the_vocabulary_says() -> None:
    with pytest.raises(VocabularyError, match="unknown token 'd'"):
        flat_tokens(flat("ab", "ad"), VOCABULARY)
    known = Vocabulary(["a", "b", "c"], [("text", 1)], unknown="c")
    found = flat_tokens(flat("ab", "", "ad"), known)
    assert (found.token.tolist(), found.begin.tolist()) == ([0, 1, 0, 2], [0, 2, 2, 4])
    assert len(flat_tokens(flat(), VOCABULARY).token) == 0


def test_targets_are_tensors_of_their_types() -> None:
    examples = of_texts(SequenceExamples, "a", "b")
    (batch,) = examples.loader(VOCABULARY).batches()
    assert examples.batch_targets(batch)["number"].dtype == torch.int64
