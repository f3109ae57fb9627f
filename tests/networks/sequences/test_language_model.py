"""Language models: what the layers compute, dropout, carried state, the losses of activations, and induced trees."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.networks.word_vectors import WordVectors
from treemem.nn import ONLSTM, LanguageModel
from treemem.trees.induced import tree_from_distances
from treemem.trees.vocabulary import Vocabulary

WORDS = Vocabulary(["<eos>", *"abcde"], [])
CELLS: dict[str, dict[str, Any]] = {"ON-LSTM": {"chunk_size": 4}, "LSTM": {"cell": "LSTM"}}


def model_of(cell: str, **options: Any) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(8, WORDS, **{"layer_sizes": [12, 8], **CELLS[cell], **options}).double()


@pytest.mark.parametrize("cell", CELLS)
def test_the_logits_are_those_of_the_layers_and_the_tied_softmax(cell: str) -> None:
    model = model_of(cell).eval()
    torch.nn.init.normal_(model.bias)
    batch = TokenBatch.from_sequences([[0, 1, 2, 3], [4, 5, 0, 1]])
    vectors = model.embedding.weight[batch.token]
    for layer in model.stack.layers:
        if cell == "ON-LSTM":
            continue
        vectors, _ = torch.nn.LSTM.forward(layer, vectors.transpose(0, 1))  # type: ignore[arg-type]
        vectors = vectors.transpose(0, 1)
    if cell == "ON-LSTM":
        encoder = ONLSTM(8, WORDS, layer_sizes=[12, 8], chunk_size=4, form="leaves").double().eval()
        encoder.load_state_dict({k: v for k, v in model.state_dict().items() if k != "bias"})
        vectors = encoder(batch).outputs
    output = model(batch)
    assert torch.allclose(output.outputs, vectors @ model.embedding.weight.T + model.bias, atol=1e-12)
    assert torch.allclose(output.root[:, 0], vectors[:, -1], atol=1e-12)


def test_the_published_model_has_the_published_number_of_weights() -> None:
    vocabulary = Vocabulary(["<eos>", *map(str, range(9999))], [])
    with torch.device("meta"):
        model = LanguageModel(400, vocabulary, layer_sizes=[1150, 1150, 400])
    assert sum(weight.numel() for weight in model.parameters()) == 25_232_180


@pytest.mark.parametrize("cell", CELLS)
def test_a_softmax_of_its_own_takes_vectors_and_layers_of_any_width(cell: str) -> None:
    model = model_of(cell, layer_sizes=[12, 8], embedding_size=5, tied=False).eval()
    batch = TokenBatch.from_sequences([[0, 1, 2, 3], [4, 5, 0, 1]])
    hidden = model.stack(model.embedding(batch.token), batch.lengths).h
    assert model.output_weight is not None
    assert torch.allclose(model(batch).outputs, hidden @ model.output_weight.T + model.bias, atol=1e-12)
    before = model.output_weight.clone()
    model.reset_parameters()
    assert not torch.equal(model.output_weight, before)
    assert 0.05 < model.output_weight.abs().max() <= 0.1
    with pytest.raises(RecipeError, match=r"have 5 numbers and the last layer 8, .* set tied=False"):
        model_of(cell, embedding_size=5)


def test_words_may_have_given_vectors_of_another_width() -> None:
    model = model_of("LSTM").eval()
    model.embedding = WordVectors(torch.randn(6, 5), 8).double()  # type: ignore[assignment]
    outputs = model(TokenBatch.from_sequences([[0, 1, 2]])).outputs
    vectors = model.embedding(torch.arange(6))
    assert model.stack is not None
    hidden = model.stack(vectors[None, :3], torch.tensor([3])).h
    assert torch.allclose(outputs, hidden @ vectors.t() + model.bias, atol=1e-12)
    with pytest.raises(RecipeError, match="cannot read features"):
        model.read_features(4)


def test_a_dropped_word_is_dropped_at_all_its_places_and_others_are_scaled() -> None:
    model = model_of("LSTM", embedding_dropout=0.75).train().requires_grad_(False)
    torch.nn.init.ones_(model.embedding.weight)
    tokens = torch.tensor([[1, 2, 3, 1], [4, 1, 2, 5]])
    seen = set()
    for _ in range(20):
        vectors = model.embed(tokens)
        factors = vectors[..., 0]
        assert torch.equal(vectors, factors[..., None].expand(2, 4, 8))
        assert torch.equal(factors[0, [0, 3]], factors[[0, 1], [0, 1]])
        assert factors[0, 1] == factors[1, 2]
        seen.add(tuple(factors.unique().tolist()))
    assert seen <= {(0.0,), (0.0, 4.0), (4.0,)}
    assert (0.0, 4.0) in seen
    assert torch.equal(model.eval().embed(tokens), torch.ones(2, 4, 8).double())


def test_weight_dropout_of_an_lstm_drops_recurrent_weights_alone_and_scales_the_rest() -> None:
    torch.manual_seed(0)
    stack = LSTMStack(3, [4], weight_dropout=0.5).double()
    inputs, lengths = torch.randn(2, 1, 3, dtype=torch.float64), torch.tensor([1, 1])
    assert torch.equal(stack.train()(inputs, lengths).h, stack.eval()(inputs, lengths).h), "h is 0 at the first step"
    state = [(torch.ones(2, 4, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64))]
    layer = stack.layers[0]
    torch.manual_seed(5)
    dropped = torch.nn.functional.dropout(layer.weight_hh_l0, 0.5)  # type: ignore[arg-type]
    torch.manual_seed(5)
    found = stack.train()(inputs, lengths, state).h
    with torch.no_grad():
        layer.weight_hh_l0.copy_(dropped)  # type: ignore[operator, union-attr]
    assert torch.allclose(stack.eval()(inputs, lengths, state).h, found, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_activation_losses_are_the_mean_squares_before_the_last_dropout(cell: str) -> None:
    model = model_of(cell, output_dropout=0.5).train()
    batch = TokenBatch.from_sequences([[0, 1, 2, 3], [4, 5, 0, 1]])
    h = model.stack(model.embed(batch.token), batch.lengths).h
    losses = model(batch).auxiliary_losses
    assert torch.allclose(losses["activation"].mean, (h**2).mean(), atol=1e-12)
    assert torch.allclose(losses["temporal_activation"].mean, ((h[:, 1:] - h[:, :-1]) ** 2).mean(), atol=1e-12)
    assert model.eval()(batch).auxiliary_losses == {}
    model.output_dropout = 0.0
    padded = model.train()(TokenBatch.from_sequences([[0, 1, 2, 3], [4, 5], []])).auxiliary_losses
    alone = [model(TokenBatch.from_sequences([text])).auxiliary_losses for text in ([0, 1, 2, 3], [4, 5])]
    for name, loss in padded.items():
        assert torch.allclose(loss.mean, sum((own[name] for own in alone), SumCount.zero()).mean, atol=1e-12)
    one = model.train()(TokenBatch.from_sequences([[0], [4]])).auxiliary_losses
    assert one["temporal_activation"].mean.item() == 0


@pytest.mark.parametrize(("layer", "gate"), [(None, "forget"), (0, "forget"), (1, "input")])
def test_induced_trees_are_read_from_the_distances_after_an_end_of_sentence(layer: int | None, gate: str) -> None:
    model = model_of("ON-LSTM", input_dropout=0.5).train()
    sentences = [[1, 2, 3, 4, 5], [5], [2, 1]]
    trees = model.induced_trees(TokenBatch.from_sequences(sentences), layer=layer, gate=gate)  # type: ignore[arg-type]
    assert model.training
    model.eval()
    for sentence, tree in zip(sentences, trees, strict=True):
        trace = model(TokenBatch.from_sequences([[0, *sentence, 0]]), trace=True).trace[f"{gate}_distance"]
        distances = trace[0, 1 if layer is None else layer, 1:-1]
        assert tree == tree_from_distances(distances, [WORDS.leaves[word] for word in sentence])


def test_trees_and_states_that_there_are_not_are_refused() -> None:
    batch = TokenBatch.from_sequences([[1, 2]])
    with pytest.raises(RecipeError, match="induces no trees"):
        model_of("LSTM").induced_trees(batch)
    with pytest.raises(RecipeError, match="layer 2"):
        model_of("ON-LSTM").induced_trees(batch, layer=2)
    with pytest.raises(GraphError, match="2 layers"):
        model_of("LSTM")(batch.with_state([]))
