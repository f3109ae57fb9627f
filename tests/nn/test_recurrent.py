from __future__ import annotations

import pytest
import torch
from engine_parity import needs_dgl
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.nn import LSTM, RNN
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tokens import token_table
from treemem.trees.tree import Tree

ENCODERS = [LSTM, RNN]


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_a_sequence_is_read_alike_alone_and_among_longer_and_shorter_ones(
    encoder_class: type[LSTM] | type[RNN],
) -> None:
    torch.manual_seed(0)
    encoder = encoder_class(4, VOCABULARY).double()
    forest = random_forest(seed=3, num_trees=7, size=12)
    together = encoder(TreeBatch.from_forest(forest, VOCABULARY))
    assert together.root.shape == (7, 1, 4)
    for index, tree in enumerate(forest):
        alone = encoder(TreeBatch.from_trees([tree], VOCABULARY))
        length = int(together.lengths[index])
        assert alone.h.shape == (1, length, 4)
        torch.testing.assert_close(together.root[index, 0], alone.root[0, 0])
        torch.testing.assert_close(together.h[index, :length], alone.h[0])
        torch.testing.assert_close(together.h[index, length - 1], together.root[index, 0])
        assert not together.h[index, length:].any()


def test_an_lstm_is_that_of_torch_with_other_names() -> None:
    torch.manual_seed(0)
    encoder = LSTM(4, VOCABULARY).double()
    reference = torch.nn.LSTM(4, 4, batch_first=True).double()
    order = torch.cat([torch.arange(8), torch.arange(12, 16), torch.arange(8, 12)])  # torch has the output gate last
    with torch.no_grad():
        reference.weight_hh_l0.copy_(encoder.gates.weight[order, :4])
        reference.weight_ih_l0.copy_(encoder.gates.weight[order, 4:])
        reference.bias_ih_l0.copy_(encoder.gates.bias[order])
        reference.bias_hh_l0.zero_()
    inputs = torch.randn(2, 6, 4, dtype=torch.float64)
    reading = encoder.read(inputs, torch.tensor([6, 6]))
    expected, (final, _) = reference(inputs)
    torch.testing.assert_close(reading.outputs, expected)
    torch.testing.assert_close(reading.encoding, final[0])


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_every_token_has_a_vector_of_its_own(encoder_class: type[LSTM] | type[RNN]) -> None:
    for form in ("function", "preorder", "leaves"):
        encoder = encoder_class(4, VOCABULARY, form=form)  # type: ignore[arg-type]
        assert encoder.embedding.num_embeddings == len(token_table(VOCABULARY, form))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_gradients_pass_gradcheck(encoder_class: type[LSTM] | type[RNN]) -> None:
    torch.manual_seed(0)
    encoder = encoder_class(2, VOCABULARY).double()
    inputs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: encoder.read(value, torch.tensor([2, 4, 1]))[:2], inputs)


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_an_empty_sequence_has_the_encoding_zero_and_changes_no_other(encoder_class: type[LSTM] | type[RNN]) -> None:
    torch.manual_seed(0)
    encoder = encoder_class(2, VOCABULARY)
    inputs = torch.randn(3, 4, 2)
    reading = encoder.read(inputs, torch.tensor([2, 0, 4]))
    alone = encoder.read(inputs[[0, 2]], torch.tensor([2, 4]))
    torch.testing.assert_close(reading.encoding[[0, 2]], alone.encoding)
    torch.testing.assert_close(reading.outputs[[0, 2]], alone.outputs)
    assert not reading.encoding[1].any()
    assert not reading.outputs[1].any()
    nothing = encoder.read(inputs, torch.zeros(3, dtype=torch.int64))
    assert not nothing.encoding.any()


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_an_empty_batch_has_no_encodings(encoder_class: type[LSTM] | type[RNN]) -> None:
    encoder = encoder_class(4, VOCABULARY)
    states = encoder(TreeBatch.from_trees([], VOCABULARY, trees_per_example=2))
    assert states.root.shape == (0, 2, 4)


@needs_dgl
def test_a_graph_has_no_tokens() -> None:
    graph = TreeBatch.from_trees([Tree("x")], VOCABULARY).graph
    with pytest.raises(GraphError, match="no tokens"):
        LSTM(4, VOCABULARY)(TreeBatch.from_dgl(graph, VOCABULARY))
