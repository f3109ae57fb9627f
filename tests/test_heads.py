from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.nn import LSTM, ClassifierHead, ComparisonHead, EqualityHead, NumberDecoder, RelationHead, TreeLSTM
from treemem.schedule.tree_batch import TreeBatch


@pytest.fixture
def pairs() -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12), VOCABULARY, trees_per_example=2)


def test_equality_is_a_dot_product_and_a_bias_that_starts_at_zero() -> None:
    head = EqualityHead().double()
    assert head.bias.item() == 0
    with torch.no_grad():
        head.bias.fill_(-0.5)
    encodings = torch.tensor([[[1.0, 2.0], [3.0, -1.0]], [[0.0, 1.0], [5.0, 4.0]]], dtype=torch.float64)
    scores = head(encodings)
    torch.testing.assert_close(scores, torch.tensor([0.5, 3.5], dtype=torch.float64))
    loss = head.loss(scores, torch.tensor([1, 0]))
    assert loss.item() == pytest.approx((math.log1p(math.exp(-0.5)) + math.log1p(math.exp(3.5))) / 2)
    torch.testing.assert_close(head.probability(scores), torch.sigmoid(scores))


def test_similarities_are_what_they_say() -> None:
    encodings = torch.tensor([[[3.0, 4.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]])
    assert EqualityHead("cosine")(encodings).tolist() == pytest.approx([5, 0], abs=1e-5)
    assert EqualityHead("distance")(encodings).tolist() == [1, -4]
    with pytest.raises(RecipeError, match="'euclidean' is none of dot, cosine, distance"):
        EqualityHead("euclidean")  # type: ignore[arg-type]


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


def test_heads_cannot_tell_who_made_the_encodings(pairs: TreeBatch) -> None:
    heads = [
        EqualityHead("cosine"),
        ComparisonHead(4),
        RelationHead(4, 7),
        RelationHead(4, 7, features="differences", layer_size=0),
    ]
    for encoder in (TreeLSTM(4, VOCABULARY), LSTM(4, VOCABULARY)):
        states = encoder(pairs)
        for head in heads:
            torch.testing.assert_close(head(states), head(states.root))
            assert len(head(states)) == 3
        assert NumberDecoder(4)(states).shape == (3, 2)


def test_a_pair_head_refuses_single_trees() -> None:
    for head in (EqualityHead(), ComparisonHead(4), RelationHead(4, 3)):
        with pytest.raises(GraphError, match="make the batch with trees_per_example=2"):
            head(torch.zeros(3, 1, 4))
    with pytest.raises(GraphError, match="make the batch with trees_per_example=1"):
        ClassifierHead(4, 3)(torch.zeros(3, 2, 4))


def test_relation_features() -> None:
    left, right = torch.randn(5, 4), torch.randn(5, 4)
    encodings = torch.stack([left, right], dim=1)
    head = RelationHead(4, 3, features="differences", layer_size=0)
    expected = head.classify(torch.cat([left, right, (left - right).abs(), left * right], dim=1))
    torch.testing.assert_close(head(encodings), expected)
    plain = RelationHead(4, 3, layer_size=6, activation="relu")
    assert plain.compare is not None
    hidden = torch.relu(plain.compare(torch.cat([left, right], dim=1)))
    torch.testing.assert_close(plain(encodings), plain.classify(hidden))
    with pytest.raises(RecipeError, match="features='sum'"):
        RelationHead(4, 3, features="sum")  # type: ignore[arg-type]


def test_relation_dropouts_are_before_the_comparison_layer_and_before_the_classifier() -> None:
    torch.manual_seed(0)
    encodings = torch.randn(5, 2, 4)
    features = RelationHead(4, 3, activation="elu", feature_dropout=1.0)
    assert features.compare is not None
    nothing_compared = features.classify(functional.elu(features.compare.bias)).expand(5, 3)
    torch.testing.assert_close(features(encodings), nothing_compared)
    classes = RelationHead(4, 3, dropout=1.0)
    torch.testing.assert_close(classes(encodings), classes.classify.bias.expand(5, 3))
    without_layer = RelationHead(4, 3, layer_size=0)
    torch.testing.assert_close(without_layer(encodings), without_layer.classify(encodings.flatten(1)))
    plain = RelationHead(4, 3, activation="elu")
    plain.load_state_dict(features.state_dict())
    torch.testing.assert_close(features.eval()(encodings), plain(encodings))


def test_a_classifier_reads_roots_or_every_node() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12), VOCABULARY)
    states = TreeLSTM(4, VOCABULARY)(batch)
    roots, nodes = ClassifierHead(4, 3), ClassifierHead(4, 3, nodes="every")
    torch.testing.assert_close(roots(states), roots.classify(states.root[:, 0]))
    torch.testing.assert_close(nodes(states), nodes.classify(states.h))
    labels = torch.randint(0, 3, (batch.num_nodes,))
    labels[::2] = -1
    known = labels >= 0
    expected = torch.nn.functional.cross_entropy(nodes(states)[known], labels[known])
    torch.testing.assert_close(nodes.loss(nodes(states), labels), expected)
    with pytest.raises(RecipeError, match="nodes='leaves'"):
        ClassifierHead(4, 3, nodes="leaves")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r'nodes="every" reads what a tree layer returned.*, not SequenceStates; for'):
        nodes(LSTM(4, VOCABULARY)(batch))
    with pytest.raises(GraphError, match=r"\[nodes, hidden_size\], not \[6, 1, 4\]"):
        nodes(states.root)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (torch.tensor([0, 2]), "labels must be below 2, the number of classes, not 2"),
        (torch.tensor([0]), r"labels must be \[2\], one for each example or node, not \[1\]"),
        (torch.tensor([0.0, 1.0]), "labels must be whole numbers of classes, such as torch.long, not torch.float32"),
    ],
)
@pytest.mark.parametrize("head", [ClassifierHead, RelationHead])
def test_labels_that_are_no_classes_are_refused(
    head: type[ClassifierHead | RelationHead], labels: torch.Tensor, problem: str
) -> None:
    with pytest.raises(GraphError, match=problem):
        head.loss(torch.zeros(2, 2), labels)


def test_labels_of_equality_are_0_and_1() -> None:
    with pytest.raises(GraphError, match="labels must be 1 for equal and 0 for unequal, not -1"):
        EqualityHead.loss(torch.zeros(2), torch.tensor([1, -1]))
    with pytest.raises(GraphError, match=r"labels must be \[2\], one for each example or node, not \[2, 1\]"):
        EqualityHead.loss(torch.zeros(2), torch.ones(2, 1))
    with pytest.raises(GraphError, match="labels must be a tensor, not list"):
        EqualityHead.loss(torch.zeros(2), [0, 1])  # type: ignore[arg-type]
    assert EqualityHead.loss(torch.zeros(2), torch.tensor([True, False])) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("head", "trees"), [(ClassifierHead(4, 2), 1), (RelationHead(4, 2), 2), (ComparisonHead(4), 2)], ids=lambda each: ""
)
def test_states_of_another_width_are_refused(head: torch.nn.Module, trees: int) -> None:
    with pytest.raises(GraphError, match=r"head has hidden_size=4, and .* width 3; make the head with hidden_size=3"):
        head(torch.zeros(5, trees, 3))


def test_a_number_is_right_when_it_is_close_relative_to_the_larger() -> None:
    numbers = torch.tensor([1000.0, 1000.0, 0.0, -1.0, 0.0, float("nan")], dtype=torch.float64)
    targets = torch.tensor([1001.0, 1002.0, 0.0, 1.0, 1e-9, 1.0], dtype=torch.float64)
    assert NumberDecoder.correct(numbers, targets).tolist() == [True, False, True, False, False, False]


def test_heads_draw_new_weights() -> None:
    for head in (RelationHead(4, 3), ClassifierHead(4, 3), NumberDecoder(4)):
        before = head.state_dict()["classify.weight" if hasattr(head, "classify") else "first.weight"].clone()
        head.reset_parameters()
        after = head.state_dict()["classify.weight" if hasattr(head, "classify") else "first.weight"]
        assert not torch.equal(before, after)
    equality = EqualityHead()
    torch.nn.init.ones_(equality.bias)
    equality.reset_parameters()
    assert equality.bias.item() == 0


def test_a_number_decoder_refuses_targets_and_states_that_do_not_fit() -> None:
    numbers = NumberDecoder(4)(torch.zeros(3, 1, 4))
    for compare in (NumberDecoder.loss, NumberDecoder.correct):
        with pytest.raises(GraphError, match=r"numbers \[3, 1\] need as many targets, not \[3\]"):
            compare(numbers, torch.zeros(3))
    with pytest.raises(GraphError, match="this head has hidden_size=4"):
        NumberDecoder(4)(torch.zeros(3, 1, 5))
