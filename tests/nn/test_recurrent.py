from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same, needs_dgl
from tree_strategies import VOCABULARY, random_forest

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


def results(encoder: LSTM, inputs: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """The outputs, and the gradient of every weight and of the inputs."""
    encoder.zero_grad()
    own = inputs.clone().requires_grad_()
    reading = encoder.read(own, lengths)
    found = {"encoding": reading.encoding, "outputs": reading.outputs}
    weighted = [(value * torch.cos(torch.arange(value.numel())).view(value.shape)).sum() for value in found.values()]
    torch.stack(weighted).sum().backward()
    gradients = {name: parameter.grad for name, parameter in encoder.lstm.named_parameters()} | {"inputs": own.grad}
    found |= {f"gradient of {name}": value.clone() for name, value in gradients.items() if value is not None}
    return {name: value.detach() for name, value in found.items()}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_loop_equals_the_lstm_of_torch_on_every_output_and_gradient(num_layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    encoder = LSTM(4, VOCABULARY, num_layers=num_layers, bidirectional=bidirectional, embedding_size=3).double()
    inputs, lengths = torch.randn(5, 6, 3, dtype=torch.float64), torch.tensor([2, 6, 0, 1, 6])
    assert encoder.hidden_size == (8 if bidirectional else 4)
    assert encoder.read(inputs, lengths).encoding.shape == (5, encoder.hidden_size)
    found = {}
    for engine in ("torch", "naive"):
        encoder.engine = engine  # type: ignore[assignment]
        found[engine] = results(encoder, inputs, lengths)
    assert len(found["torch"]) == 3 + 4 * num_layers * (1 + bidirectional)
    assert_same(found["naive"], found["torch"], "naive")


def test_of_both_directions_the_encoding_is_the_last_state_of_each() -> None:
    torch.manual_seed(0)
    encoder = LSTM(4, VOCABULARY, bidirectional=True)
    inputs = torch.randn(2, 5, 4)
    reading = encoder.read(inputs, torch.tensor([5, 3]))
    torch.testing.assert_close(
        reading.encoding[:, :4], torch.stack([reading.outputs[0, 4, :4], reading.outputs[1, 2, :4]])
    )
    torch.testing.assert_close(reading.encoding[:, 4:], reading.outputs[:, 0, 4:])


def test_update_dropout_drops_what_is_added_to_the_cell() -> None:
    torch.manual_seed(0)
    encoder = LSTM(300, VOCABULARY, update_dropout=0.25)
    inputs, one = torch.randn(1, 1, 300), torch.tensor([1])
    outputs = encoder.read(inputs, one).encoding
    kept = outputs != 0
    assert 0.65 < kept.float().mean() < 0.85
    encoder.eval()
    plain = encoder.read(inputs, one).encoding
    assert (outputs[kept].abs() > plain[kept].abs()).all()
    assert plain.all()


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_every_token_has_a_vector_of_its_own(encoder_class: type[LSTM] | type[RNN]) -> None:
    for form in ("function", "brackets", "leaves"):
        encoder = encoder_class(4, VOCABULARY, form=form)  # type: ignore[arg-type]
        assert encoder.embedding.num_embeddings == len(token_table(VOCABULARY, form))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoder_class", ENCODERS)
def test_gradients_pass_gradcheck(encoder_class: type[LSTM] | type[RNN]) -> None:
    torch.manual_seed(0)
    encoder = encoder_class(2, VOCABULARY).double()
    inputs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: encoder.read(value, torch.tensor([2, 4, 1]))[:2], inputs)


@needs_dgl
def test_a_batch_of_a_graph_is_read_as_its_trees() -> None:
    batch = TreeBatch.from_trees([Tree("x")], VOCABULARY)
    encoder = LSTM(4, VOCABULARY)
    torch.testing.assert_close(encoder(TreeBatch.from_dgl(batch.graph, VOCABULARY)).root, encoder(batch).root)
