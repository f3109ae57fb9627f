"""Heads: what they compute of encodings, their losses and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.nn import LSTM, ClassifierHead, ComparisonHead, EqualityHead, NumberDecoder, RelationHead, TreeLSTM
from treemem.schedule.tree_batch import TreeBatch

PAIRS: list[Any] = [EqualityHead("cosine"), ComparisonHead(4), RelationHead(4, 7)]


def batch_of(trees_per_example: int = 1) -> TreeBatch:
    forest = random_forest(seed=6, num_trees=6, size=12, widest=2)
    return TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=trees_per_example)


def test_similarities_are_what_they_say() -> None:
    encodings = torch.tensor([[[3.0, 4.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])
    assert EqualityHead()(encodings).tolist() == [25, 0]
    assert EqualityHead("cosine")(encodings).tolist() == pytest.approx([5, 0], abs=1e-5)
    assert EqualityHead("distance")(encodings).tolist() == [1, -4]


def test_a_comparison_is_the_same_when_the_sides_are_swapped() -> None:
    encodings = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1))
    head = ComparisonHead(4)
    torch.testing.assert_close(head(encodings), head(encodings.flip(1)))
    left, right = encodings.unbind(1)
    compared = torch.tanh(
        torch.cat([left * right, (left - right).abs()], 1) @ head.compare.weight.T + head.compare.bias
    )
    torch.testing.assert_close(head(encodings), compared @ head.score.weight[0] + head.score.bias)


def test_at_an_even_score_nothing_is_right() -> None:
    scores = torch.tensor([0.0, 0.0, 0.1, 0.1, -0.1, -0.1])
    labels = torch.tensor([1, 0, 1, 0, 1, 0])
    assert EqualityHead.correct(scores, labels).tolist() == [False, False, True, False, False, True]
    assert EqualityHead.prediction(scores).tolist() == [False, False, True, True, False, False]


def test_losses_of_no_examples_are_zero() -> None:
    assert EqualityHead.loss(torch.zeros(0), torch.zeros(0)).item() == 0
    assert RelationHead.loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).item() == 0
    assert ClassifierHead.loss(torch.zeros(2, 3), torch.tensor([-1, -1])).item() == 0
    assert NumberDecoder.loss(torch.zeros(0), torch.zeros(0)).item() == 0


def test_heads_cannot_tell_who_made_the_encodings() -> None:
    for encoder in (TreeLSTM(4, VOCABULARY), LSTM(4, VOCABULARY)):
        states = encoder(batch_of(2))
        for head in PAIRS:
            torch.testing.assert_close(head(states), head(states.root))
            assert len(head(states)) == 3
        assert NumberDecoder(4)(states).shape == (3, 2)


def test_relation_features_and_dropouts_before_the_comparison_layer_and_before_the_classifier() -> None:
    torch.manual_seed(0)
    encodings = torch.randn(5, 2, 4)
    left, right = encodings.unbind(1)
    head = RelationHead(4, 3, features="differences", layer_size=0)
    expected = head.classify(torch.cat([left, right, (left - right).abs(), left * right], dim=1))
    torch.testing.assert_close(head(encodings), expected)
    without_layer = RelationHead(4, 3, layer_size=0)
    torch.testing.assert_close(without_layer(encodings), without_layer.classify(encodings.flatten(1)))
    plain = RelationHead(4, 3, layer_size=6, activation="elu", feature_dropout=1.0)
    assert plain.compare is not None
    nothing_compared = plain.classify(functional.elu(plain.compare.bias)).expand(5, 3)
    torch.testing.assert_close(plain(encodings), nothing_compared)
    compared = functional.elu(plain.compare(encodings.flatten(1)))
    torch.testing.assert_close(plain.eval()(encodings), plain.classify(compared))
    classes = RelationHead(4, 3, dropout=1.0)
    torch.testing.assert_close(classes(encodings), classes.classify.bias.expand(5, 3))


def test_a_classifier_reads_roots_or_every_node() -> None:
    batch = batch_of()
    states = TreeLSTM(4, VOCABULARY)(batch)
    roots, nodes = ClassifierHead(4, 3), ClassifierHead(4, 3, nodes="every")
    torch.testing.assert_close(roots(states), roots.classify(states.root[:, 0]))
    torch.testing.assert_close(nodes(states), nodes.classify(states.h))
    labels = torch.randint(0, 3, (batch.num_nodes,))
    labels[::2] = -1
    known = labels >= 0
    expected = functional.cross_entropy(nodes(states)[known], labels[known])
    torch.testing.assert_close(nodes.loss(nodes(states), labels), expected)


def test_a_number_is_right_when_it_is_close_relative_to_the_larger() -> None:
    numbers = torch.tensor([1000.0, 1000.0, 0.0, -1.0, 0.0, float("nan")], dtype=torch.float64)
    targets = torch.tensor([1001.0, 1002.0, 0.0, 1.0, 1e-9, 1.0], dtype=torch.float64)
    assert NumberDecoder.correct(numbers, targets).tolist() == [True, False, True, False, False, False]


def test_heads_draw_new_weights() -> None:
    for head in (RelationHead(4, 3), ClassifierHead(4, 3), NumberDecoder(4)):
        before = {name: value.clone() for name, value in head.state_dict().items()}
        head.reset_parameters()
        assert not any(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    equality = EqualityHead()
    torch.nn.init.ones_(equality.bias)
    equality.reset_parameters()
    assert equality.bias.item() == 0


OF_NODES, NUMBERS = ClassifierHead(4, 3, nodes="every"), torch.zeros(3, 1)
WIDTH_4: Any = [(ClassifierHead(4, 2), 1), (RelationHead(4, 2), 2), (ComparisonHead(4), 2), (NumberDecoder(4), 1)]
REFUSED: list[tuple[Any, str]] = [
    *((lambda head=head: head(torch.zeros(3, 1, 4)), "trees_per_example=2") for head in PAIRS),
    (lambda: ClassifierHead(4, 3)(torch.zeros(3, 2, 4)), "trees_per_example=1"),
    (lambda: OF_NODES(LSTM(4, VOCABULARY)(batch_of())), r'nodes="every" reads .*, not SequenceStates'),
    (lambda: OF_NODES(torch.zeros(6, 1, 4)), r"\[nodes, hidden_size\], not \[6, 1, 4\]"),
    *((lambda head=head, trees=trees: head(torch.zeros(5, trees, 3)), "hidden_size=4") for head, trees in WIDTH_4),
    *(
        (lambda head=head, labels=labels: head.loss(torch.zeros(2, 2), labels), f"labels must be {words}")
        for head in (ClassifierHead, RelationHead)
        for labels, words in (
            (torch.tensor([0, 2]), "below 2, the number of classes, not 2"),
            (torch.tensor([0]), r"\[2\], one for each example or node, not \[1\]"),
            (torch.tensor([0.0, 1.0]), "whole numbers of classes"),
        )
    ),
    (lambda: EqualityHead.loss(torch.zeros(2), torch.tensor([1, -1])), "labels must be 1 .*, not -1"),
    (lambda: EqualityHead.loss(torch.zeros(2), torch.ones(2, 1)), r"labels must be \[2\], .* not \[2, 1\]"),
    (lambda: EqualityHead.loss(torch.zeros(2), [0, 1]), "labels must be a tensor"),  # type: ignore[arg-type]
    (lambda: NumberDecoder.loss(NUMBERS, torch.zeros(3)), r"numbers \[3, 1\] need as many targets"),
    (lambda: NumberDecoder.correct(NUMBERS, torch.zeros(3)), r"numbers \[3, 1\] need as many targets"),
]


@pytest.mark.parametrize(("run", "words"), REFUSED)
def test_encodings_and_labels_that_do_not_fit_are_refused(run: Any, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        run()


def test_labels_of_equality_may_be_booleans() -> None:
    assert EqualityHead.loss(torch.zeros(2), torch.tensor([True, False])) == pytest.approx(math.log(2))
