"""What every encoder that reads trees as tokens holds to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import MoreX, toy_data
from tree_strategies import VOCABULARY, random_forest

import treemem
import treemem.nn
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.sequence_encoder import SequenceEncoder
from treemem.networks.word_vectors import WordVectors
from treemem.runs import TrainingOptions, fit
from treemem.schedule.tree_batch import TreeBatch

NETWORKS = [
    NetworkConfig("RNN", {}),
    NetworkConfig("LSTM", {}),
    NetworkConfig("LSTM", {"num_layers": 2, "dropout": 0.1, "input_dropout": 0.1, "embedding_size": 5}),
    NetworkConfig("LSTM", {"update_dropout": 0.1, "form": "brackets"}),
    NetworkConfig("MemoryRNN", {"memory": "stack", "memory_size": 3, "embedding_size": 5}),
    NetworkConfig("MemoryRNN", {"cell": "RNN", "memory": "superposition", "memory_options": {"depth": 3}}),
    NetworkConfig("MemoryRNN", {"memory": "nondeterministic", "memory_options": {"normalized": True, "symbols": 2}}),
    NetworkConfig("MemoryRNN", {"cell": "GRU", "memory": "none", "num_layers": 2}),
    NetworkConfig(
        "ONLSTM",
        {"layer_sizes": [4, 6], "chunk_size": 2, "embedding_size": 3, "embedding_bound": 0.1, "dropout": 0.1},
    ),
    NetworkConfig("ONLSTM", {"num_layers": 2, "chunk_size": 3, "engine": "naive", "weight_dropout": 0.2}),
    NetworkConfig("Transformer", {"num_layers": 2, "num_heads": 2, "feedforward_size": 5, "dropout": 0.1}),
    NetworkConfig("Transformer", {"num_layers": 2, "num_heads": 2, "norm_first": True, "read": "mean"}),
    NetworkConfig(
        "Transformer", {"num_layers": 1, "num_heads": 3, "read": "first", "positions": "learned", "max_length": 40}
    ),
    NetworkConfig("UniversalTransformer", {"num_steps": 3, "num_heads": 2, "read": "last", "embedding_bound": 0.1}),
    NetworkConfig("UniversalTransformer", {"num_steps": 4, "num_heads": 2, "act": True}),
    NetworkConfig("OrderedMemory", {"slots": 4, "embedding_size": 5, "dropout": 0.1, "memory_dropout": 0.1}),
    NetworkConfig("OrderedMemory", {"slots": 3, "cell": "rnn", "score": "tanh", "engine": "naive"}),
    NetworkConfig("EfficientBeamTreeGRC", {"beam_size": 3, "scored_size": 2, "embedding_size": 5, "dropout": 0.1}),
    NetworkConfig("BeamTreeGRC", {"beam_size": 2, "noise": False, "engine": "naive"}),
    NetworkConfig("BeamTreeGRC", {"beam_size": 3, "top_k": "onesoft", "dropout": 0.1}),
    NetworkConfig("GumbelTreeLSTM", {"embedding_size": 5, "temperature": 0.5, "input_dropout": 0.1}),
    NetworkConfig("GumbelTreeLSTM", {"leaf": "lstm", "noise": False, "engine": "naive"}),
    NetworkConfig("GumbelTreeLSTM", {"leaf": "bilstm", "intra_attention": True}),
    NetworkConfig("CRvNN", {"transition_features": 2, "embedding_size": 5, "dropout": 0.1}),
    NetworkConfig("CRvNN", {"window": 3, "modulated": False, "separate_norms": True, "engine": "naive"}),
    NetworkConfig("CRvNN", {"equation": 6}),
    NetworkConfig("DIORA", {"embedding_size": 5, "input_dropout": 0.1}),
    NetworkConfig("DIORA", {"composition": "mlp", "negatives": 3, "embedding_size": 5}),
    NetworkConfig("DIORA", {"outside": False}),
    NetworkConfig("SPINN", {"transitions": "reinforced", "tracker_size": 3, "embedding_size": 5, "temperature": 0.5}),
    NetworkConfig("SPINN", {"transitions": "reinforced", "tracker_size": 2, "baseline": "value", "engine": "naive"}),
    NetworkConfig("RRNet", {"policy_size": 3, "temperature": 0.5, "baseline": "value"}),
    NetworkConfig("RRNet", {"policy_size": 5, "credited_steps": "all", "engine": "naive"}),
    NetworkConfig("DisjointTreeLSTM", {"embedding_size": 5, "embedding_bound": 0.1, "policy_updates": 2}),
    NetworkConfig("DisjointTreeLSTM", {"leaf": "lstm", "parser_leaf": "linear", "engine": "naive"}),
]
LANGUAGE_MODELS = [
    NetworkConfig("LanguageModel", {"layer_sizes": [8, 6], "chunk_size": 2}),
    NetworkConfig("LanguageModel", {"cell": "LSTM", "num_layers": 2}),
    NetworkConfig("PRPN", {"slots": 3, "lookback": 2, "embedding_size": 5, "embedding_bound": 1.0}),
]
"""They give scores of words at each token, and no states."""


def make(network: NetworkConfig) -> SequenceEncoder:
    torch.manual_seed(0)
    encoder = network.replace(hidden_size=6).build(VOCABULARY)
    assert isinstance(encoder, SequenceEncoder)
    return encoder


@pytest.mark.parametrize("network", NETWORKS + LANGUAGE_MODELS, ids=str)
def test_a_sequence_is_read_alike_alone_and_among_others_whatever_the_padding(network: NetworkConfig) -> None:
    encoder = make(network).double().eval()
    lengths = torch.tensor([3, 0, 5, 1])
    inputs = torch.randn(4, 6, encoder.embedding_size, dtype=torch.float64)
    inputs[torch.arange(6) >= lengths[:, None]] = torch.nan
    together = encoder.read(inputs, lengths)
    for index, length in enumerate(lengths.tolist()):
        alone = encoder.read(inputs[index : index + 1, :length], lengths[index : index + 1].int())
        assert alone.outputs.shape[:2] == (1, length)
        torch.testing.assert_close(together.encoding[index], alone.encoding[0])
        torch.testing.assert_close(together.outputs[index, :length], alone.outputs[0])
        assert network in LANGUAGE_MODELS or not together.outputs[index, length:].any()
    assert together.encoding[[0, 2, 3]].any(dim=1).all()
    (together.encoding.sum() + together.outputs.sum()).backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_lengths_and_tokens_may_be_whole_numbers_of_any_type(network: NetworkConfig) -> None:
    encoder = make(network).double().eval()
    token, lengths = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]), torch.tensor([4, 0, 1, 2])
    inputs = encoder.embed(token).detach()
    expected = [encoder.read(inputs, lengths).encoding, encoder(TokenBatch(token, lengths)).root]
    for dtype in WHOLE:
        found = [encoder.read(inputs, lengths.to(dtype)), encoder(TokenBatch(token.to(dtype), lengths.to(dtype)))]
        torch.testing.assert_close([found[0].encoding, found[1].root], expected, rtol=0, atol=0)
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(GraphError, match="lengths must be whole numbers"):
            encoder.read(inputs, lengths.to(dtype))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_sequence_of_nan_leaves_the_others_as_they_are(network: NetworkConfig) -> None:
    encoder, lengths = make(network).double().eval(), torch.tensor([9, 3, 0, 2, 6, 1])
    inputs = torch.randn(6, 10, encoder.embedding_size, dtype=torch.float64)
    found = []
    for first in (inputs[:1], torch.full_like(inputs[:1], torch.nan)):
        given = torch.cat([first, inputs[1:]]).requires_grad_()
        encoding = encoder.read(given, lengths).encoding[1:]
        (gradient,) = torch.autograd.grad(encoding.sin().sum(), given)
        found.append((encoding.detach(), gradient[1:]))
    torch.testing.assert_close(*found)


def test_token_batches_and_graphs_are_read_as_trees_are() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=5, size=12), VOCABULARY)
    for network in NETWORKS:
        encoder = make(network).eval()
        tokens, lengths = encoder.tokens(batch)
        for other in (TokenBatch(tokens, lengths), batch.graph):
            torch.testing.assert_close(encoder(other).root, encoder(batch).root)


def test_numbers_that_are_values_are_refused() -> None:
    vocabulary = treemem.Vocabulary(["x"], [("f", 2)], number="Number")
    trees = [treemem.Tree("f", ["x", "x"]), treemem.Tree("f", ["x", treemem.Tree("Number", value=3.0)])]
    encoder = treemem.nn.LSTM(4, vocabulary)
    assert encoder(TreeBatch.from_trees(trees[:1], vocabulary)).root.shape == (1, 1, 4)
    for form in ("leaves", "preorder"):
        encoder = treemem.nn.LSTM(4, vocabulary, form=form)
        with pytest.raises(GraphError, match=r"tree 1, node 1 .* has the value 3.0, which LSTM cannot read"):
            encoder(TreeBatch.from_trees(trees, vocabulary))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_features_of_nodes_are_refused(network: NetworkConfig) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=2, size=3), VOCABULARY)
    with pytest.raises(GraphError, match="reads tokens, not features of nodes; use a tree network"):
        make(network)(batch, torch.zeros(batch.num_nodes, 2))


def test_given_vectors_of_words_choose_trees_and_predict_tokens() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=4, size=9), VOCABULARY)
    likely = []
    for seed in range(2):
        torch.manual_seed(0)
        encoder = treemem.nn.DisjointTreeLSTM(6, VOCABULARY, form="leaves")
        draw = torch.Generator().manual_seed(seed)
        WordVectors.put_into(encoder, torch.randn(encoder.embedding.num_embeddings, 5, generator=draw))
        likely.append(encoder(batch).trace["log_probability"])
    assert not torch.equal(*likely)
    model = treemem.nn.PRPN(6, VOCABULARY, form="leaves").eval()
    expected = model(batch).outputs.shape
    WordVectors.put_into(model, torch.randn(model.embedding.num_embeddings, 5))
    assert model(batch).outputs.shape == expected
    with pytest.raises(RecipeError, match="PRPN predicts tokens with the vectors that it reads"):
        model.read_features(5)


@pytest.mark.parametrize("network", NETWORKS + LANGUAGE_MODELS, ids=str)
def test_a_stream_goes_on_from_the_state_of_the_batch_before(network: NetworkConfig) -> None:
    encoder = make(network).eval()
    whole = TokenBatch.from_sequences([[1, 2, 0, 1, 2, 2], [0, 1, 1, 2, 0, 1]])
    first, second = (TokenBatch(whole.token[:, part], torch.tensor([3, 3])) for part in (slice(3), slice(3, 6)))
    if not encoder.carries_state:
        with pytest.raises(GraphError, match="does not carry a state on"):
            encoder(second.with_state((torch.zeros(1, 2, 6),)))
        return
    outputs, expected = encoder(first), encoder(whole)
    rest = encoder(second.with_state(outputs.state))
    torch.testing.assert_close(rest.root, expected.root)
    torch.testing.assert_close(torch.cat([outputs.outputs, rest.outputs], 1), expected.outputs)
    torch.testing.assert_close(rest.state, expected.state)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_gradients_of_an_empty_batch_are_zero(network: NetworkConfig, shape: tuple[int, int]) -> None:
    encoder = make(network)
    empty = TokenBatch(torch.zeros(shape, dtype=torch.int64), torch.zeros(shape[0], dtype=torch.int64))
    encoder(empty).root.sum().backward()
    assert all(each.grad is None or not each.grad.any() for each in encoder.parameters())


@pytest.mark.parametrize("lengths", [[4, 1], [3, -1], [3], [3, 1, 1]], ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_lengths_that_do_not_fit_are_refused(network: NetworkConfig, lengths: list[int]) -> None:
    encoder = make(network)
    with pytest.raises(GraphError, match="2 sequences of at most 3 elements need as many lengths from 0 to 3"):
        encoder.read(torch.zeros(2, 3, encoder.embedding_size), torch.tensor(lengths))
    with pytest.raises(GraphError, match=r"lengths must be whole numbers, torch\.int64, not torch\.float32"):
        encoder.read(torch.zeros(2, 3, encoder.embedding_size), torch.tensor([3.0, 1.0]))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_inputs_of_another_shape_are_refused(network: NetworkConfig) -> None:
    encoder = make(network)
    size = encoder.embedding_size
    for shape in ((2, 3, size + 1), (2, 3), (2, 3, size, 1)):
        problem = rf"inputs must be \[sequences, longest, {size}\], not {re.escape(str(list(shape)))}"
        with pytest.raises(GraphError, match=problem):
            encoder.read(torch.zeros(shape), torch.tensor([3, 1]))


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_an_empty_sequence_has_the_encoding_zero(network: NetworkConfig) -> None:
    encoder = make(network)
    inputs = torch.randn(3, 4, encoder.embedding_size)
    assert not encoder.read(inputs, torch.tensor([2, 0, 4])).encoding[1].any()
    for empty in (inputs, inputs[:, :0]):
        nothing = encoder.read(empty, torch.zeros(3, dtype=torch.int64))
        assert nothing.encoding.shape == (3, 6)
        assert not nothing.encoding.any()


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig("Transformer", {"num_layers": 2, "num_heads": 2, "joint": True}),
        NetworkConfig("UniversalTransformer", {"num_steps": 3, "num_heads": 2, "joint": True, "act": True}),
    ],
    ids=str,
)
def test_of_a_pair_of_nothing_the_marks_are_read(network: NetworkConfig) -> None:
    encoder = make(network).double()
    lengths = torch.tensor([0, 0, 3, 0])
    inputs = torch.randn(4, 5, encoder.embedding_size, dtype=torch.float64)
    inputs[torch.arange(5) >= lengths[:, None]] = torch.nan
    together = encoder.read(inputs, lengths)
    assert together.encoding.any(dim=1).all()
    for pair, sides in enumerate((slice(0, 2), slice(2, 4))):
        alone = encoder.read(inputs[sides], lengths[sides])
        torch.testing.assert_close(together.encoding[pair], alone.encoding[0])
    nothing = encoder.read(inputs[:2, :0], lengths[:2])
    assert nothing.outputs.shape == (1, 3, 6)
    torch.testing.assert_close(nothing.encoding, together.encoding[:1])
    together.encoding.sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_an_empty_batch_has_no_encodings(network: NetworkConfig) -> None:
    states = make(network)(TreeBatch.from_trees([], VOCABULARY, trees_per_example=2), trace=True)
    assert states.root.shape == (0, 2, 6)
    assert all(len(value) == 0 for value in states.trace.values())


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_encodings_keep_the_precision_of_the_weights_under_autocast(network: NetworkConfig) -> None:
    encoder = make(network).eval()
    inputs = torch.randn(3, 4, encoder.embedding_size)
    with torch.no_grad():
        for lengths in (torch.tensor([4, 2, 3]), torch.tensor([4, 0, 3])):
            expected = encoder.read(inputs, lengths)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = encoder.read(inputs, lengths, trace=True)
            assert found.encoding.dtype == found.outputs.dtype == torch.float32
            assert {values.dtype for values in found.trace.values()} <= {torch.float32}
            torch.testing.assert_close(found.encoding, expected.encoding, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_seed_makes_the_weights_and_what_is_dropped(network: NetworkConfig) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=5, size=12), VOCABULARY)
    first, second = make(network), make(network)
    roots = []
    for encoder in (first, second):
        torch.manual_seed(1)
        roots.append(encoder(batch).root)
    assert torch.equal(*roots)
    before = {name: value.clone() for name, value in first.state_dict().items()}
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        first.reset_parameters()
        drawn.append({name: value.clone() for name, value in first.state_dict().items()})
    for name, value in drawn[0].items():
        start = value.flatten()
        is_constant = bool((start == start[0]).all()) or bool(((start == 0) | (start == 1)).all())  # forget gates: 1
        assert is_constant or not torch.equal(value, before[name]), name
        assert torch.equal(value, drawn[1][name]), name


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_an_encoder_is_rebuilt_from_its_plain_options(network: NetworkConfig) -> None:
    encoder = make(network)
    again = type(encoder)(vocabulary=VOCABULARY, **json.loads(json.dumps(encoder.options)))
    again.load_state_dict(encoder.state_dict())
    assert again.options == encoder.options
    for name, value in network.options.items():
        assert f"{name}={value!r}" in repr(encoder)
        assert encoder.options[name] == value


@pytest.mark.parametrize(
    "name",
    [
        "LSTM",
        "ONLSTM",
        "OrderedMemory",
        "EfficientBeamTreeGRC",
        "GumbelTreeLSTM",
        "CRvNN",
        "DIORA",
        "SPINN",
        "DisjointTreeLSTM",
        "RRNet",
    ],
)
def test_the_engine_can_be_changed_and_the_options_with_it(name: str) -> None:
    encoder: Any = NetworkConfig(name, {"hidden_size": 20}).build(VOCABULARY)
    encoder.engine = "naive"
    assert encoder.options["engine"] == "naive"
    assert "engine='naive'" in repr(encoder)
    with pytest.raises(RecipeError, match="did you mean naive"):
        encoder.engine = "navie"
    assert encoder.engine == encoder.options["engine"] == "naive"


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_trained_model_comes_back_from_its_checkpoint(network: NetworkConfig, tmp_path: Path) -> None:
    config = network.replace(hidden_size=6)
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in Model(MoreX(), config).parameters())
    data = toy_data(12)
    result = fit(MoreX(), config, data, TrainingOptions(epochs=1, accelerator="cpu"), output=tmp_path, progress=False)
    loaded = treemem.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(data), result.model.predict(data))
    torch.manual_seed(0)
    untrained: Any = Model(MoreX(), config).state_dict()
    assert any(not torch.equal(value, untrained[name]) for name, value in loaded.state_dict().items())


@pytest.mark.parametrize("network", [each for each in NETWORKS if each.network == "MemoryRNN"], ids=str)
def test_vectors_of_whole_numbers_give_the_outputs_of_the_same_numbers(network: NetworkConfig) -> None:
    torch.manual_seed(0)
    encoder = network.replace(hidden_size=6).build(VOCABULARY).eval()
    assert isinstance(encoder, SequenceEncoder)
    inputs, lengths = torch.randint(-2, 3, (3, 12, encoder.embedding_size)), torch.tensor([12, 5, 0])
    found, expected = (encoder.read(each, lengths) for each in (inputs, inputs.float()))
    torch.testing.assert_close([found.encoding, found.outputs], [expected.encoding, expected.outputs], rtol=0, atol=0)


@pytest.mark.parametrize("engine", ["auto", "naive"])
@pytest.mark.parametrize("equation", [5, 6])
def test_crvnn_reads_in_bfloat16(engine: str, equation: int) -> None:
    torch.manual_seed(0)
    encoder = NetworkConfig("CRvNN", {"hidden_size": 6, "equation": equation, "engine": engine}).build(VOCABULARY)
    assert isinstance(encoder, SequenceEncoder)
    inputs, lengths = torch.randn(3, 4, 6), torch.tensor([4, 1, 0])
    expected = encoder.read(inputs, lengths)
    found = encoder.bfloat16().read(inputs.bfloat16(), lengths)
    assert found.encoding.dtype == found.auxiliary_losses["halt"].sum.dtype == torch.bfloat16
    torch.testing.assert_close(found.encoding.float(), expected.encoding, rtol=0.1, atol=0.1)
