"""What every network that reads trees as tokens holds to: its engines, padding, precision, options and refusals."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_parity import assert_same
from sequence_networks import made, padded_inputs, results, runs_in_cpp
from toy_task import MoreX, toy_data
from tree_strategies import VOCABULARY, random_forest

import treemem
import treemem.nn
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks import NetworkConfig
from treemem.networks.parsers.diora import batched
from treemem.networks.sequence_encoder import SequenceEncoder
from treemem.networks.word_vectors import WordVectors
from treemem.ops import compile_steps
from treemem.runs import TrainingOptions, fit
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.vocabulary import Vocabulary

LENGTHS = [(5, 1, 9, 0, 2, 3), (4, 4), (1, 1), (0, 0), ()]
CERTAIN = 1e-9
"""A temperature at which each engine, which draws in its own order, samples the same."""

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "LSTM": [{}, {"num_layers": 3, "bidirectional": True, "embedding_size": 3}],
    "ONLSTM": [{"chunk_size": 3}, {"layer_sizes": [4, 6], "chunk_size": 1, "embedding_size": 3}],
    "OrderedMemory": [
        {"slots": 5, "bidirectional": True, "padding": "right flipped"},
        {"slots": 1},
        {"slots": 2, "score": "tanh", "skip": 1e-3},
        {"slots": 5, "cell": "rnn", "padding": "left"},
        {"slots": 5, "cell": "rnn", "score": "tanh"},
    ],
    "EfficientBeamTreeGRC": [{"beam_size": beams, "scored_size": 2, "noise": False} for beams in (1, 2, 5)],
    "BeamTreeGRC": [
        {"beam_size": beams, "top_k": top_k, "noise": False} for beams in (2, 5) for top_k in ("plain", "onesoft")
    ],
    "GumbelTreeLSTM": [{"noise": False, "temperature": temperature} for temperature in (1.0, 0.3)],
    "CRvNN": [
        {},
        {"threshold": 0.3, "separate_norms": True},
        {"transition_features": 0, "window": 3, "modulated": False, "activation": "relu"},
        {"transition_features": 0, "window": 7, "threshold": 0.1},
        {"equation": 6, "threshold": 0.05},
        {"equation": 6, "transition_features": 0, "window": 3, "modulated": False},
    ],
    "DIORA": [{"composition": each, "outside": outside} for each in ("tree_lstm", "mlp") for outside in (True, False)],
    "SPINN": [
        {"transitions": "gold", "tracker_size": 0},
        {"transitions": "gold", "tracker_size": 3},
        {"transitions": "predicted", "tracker_size": 3},
        {"transitions": "reinforced", "tracker_size": 3, "temperature": CERTAIN},
    ],
    "RRNet": [
        {"transitions": "gold"},
        {"transitions": "predicted", "policy_size": 3},
        {"transitions": "reinforced", "policy_size": 3, "temperature": CERTAIN},
    ],
}
"""Networks with several engines, and what their engines treat apart."""
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
    NetworkConfig("TransformerLanguageModel", {"layers": "1.superposition-3.1", "num_heads": 2}),
]
"""They give scores of words at each token, and no states."""
READERS = [*NETWORKS, *LANGUAGE_MODELS]
NEEDS_THE_BATCH = [NetworkConfig("SPINN", {"transitions": "reinforced", "tracker_size": 3, "normalisation": "batch"})]
every_network = pytest.mark.parametrize("network", NETWORKS, ids=str)


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, several in OPTIONS.items() for options in several], ids=str
)
def test_every_engine_equals_the_definition(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definition reads sequence by sequence, so neither the batch nor the number of threads has an effect."""
    network = made(name, **options)
    for lengths in LENGTHS:
        expected = results(network, lengths, "naive")
        for compiled, threads in ((False, 1), (True, 1), (True, 3)):
            with compile_steps(compiled), torch_threads(threads):
                found = results(network, lengths, "auto")
            assert_same(found, expected, f"{lengths}, C++: {compiled}, {threads} threads")
        with torch.no_grad():
            monkeypatch.setattr(batched, "_ON_CPU", 100)  # less than a batch: DIORA takes its spans part by part
            assert_same(results(network, lengths, "auto"), results(network, lengths, "naive"), "without gradients")


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize("name", OPTIONS)
def test_in_single_precision_engines_agree_as_far_as_it_goes(name: str) -> None:
    """The error is at most 1e-4 of a tensor's largest entry, or four times that of the definition."""
    network = made(name, **OPTIONS[name][0])
    exact = results(network, LENGTHS[0], "naive")
    rounded, found = (results(network.float(), LENGTHS[0], engine) for engine in ("naive", "auto"))
    for key, value in exact.items():
        largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        tolerance = 1e-4 * largest + 4 * float((rounded[key].nan_to_num() - value.nan_to_num()).abs().max())
        torch.testing.assert_close(
            found[key].to(value), value, rtol=0, atol=tolerance, equal_nan=True, msg=lambda text, key=key: key + text
        )


IN_CPP: dict[str, dict[str, Any]] = {
    "ONLSTM": {"chunk_size": 2},
    "OrderedMemory": {},
    "EfficientBeamTreeGRC": {},
    "BeamTreeGRC": {},
    "RecursionInRecursionGRC": {},
    "GumbelTreeLSTM": {},
    "CRvNN": {},
    "SPINN": {"transitions": "reinforced", "tracker_size": 3},
    "MemoryRNN": {"memory": "stack"},
}


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize("name", IN_CPP)
def test_the_fast_form_is_in_cpp_where_it_can_be(name: str) -> None:
    network = made(name, **IN_CPP[name])
    for dtype in (torch.float64, torch.float32):
        inputs = torch.randn(3, 20, network.embedding_size, dtype=dtype)
        for compiled in (True, False):
            with compile_steps(compiled):
                encoding = network.to(dtype).read(inputs, torch.tensor([20, 4, 7])).encoding
            assert runs_in_cpp(encoding) == compiled


def build(network: NetworkConfig) -> SequenceEncoder:
    torch.manual_seed(0)
    encoder = network.replace(hidden_size=6).build(VOCABULARY)
    assert isinstance(encoder, SequenceEncoder)
    return encoder


@pytest.mark.parametrize("network", READERS, ids=str)
def test_a_sequence_is_read_alike_alone_and_among_others_whatever_the_padding(network: NetworkConfig) -> None:
    encoder, lengths = build(network).double().eval(), torch.tensor([3, 0, 5, 1])
    inputs = padded_inputs((3, 0, 5, 1), encoder.embedding_size)
    together = encoder.read(inputs, lengths)
    for index, length in enumerate(lengths.tolist()):
        alone = encoder.read(inputs[index : index + 1, :length], lengths[index : index + 1].int())
        assert alone.outputs.shape[:2] == (1, length)
        torch.testing.assert_close(together.encoding[index], alone.encoding[0])
        torch.testing.assert_close(together.outputs[index, :length], alone.outputs[0])
        assert network in LANGUAGE_MODELS or not together.outputs[index, length:].any()
    assert together.encoding.any(dim=1).tolist() == [True, False, True, True]
    (together.encoding.sum() + together.outputs.sum()).backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@every_network
def test_a_sequence_of_nan_leaves_the_others_as_they_are(network: NetworkConfig) -> None:
    encoder, lengths = build(network).double().eval(), torch.tensor([9, 3, 0, 2, 6, 1])
    inputs = torch.randn(6, 10, encoder.embedding_size, dtype=torch.float64)
    found = []
    for first in (inputs[:1], torch.full_like(inputs[:1], torch.nan)):
        given = torch.cat([first, inputs[1:]]).requires_grad_()
        encoding = encoder.read(given, lengths).encoding[1:]
        (gradient,) = torch.autograd.grad(encoding.sin().sum(), given)
        found.append((encoding.detach(), gradient[1:]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("network", READERS, ids=str)
def test_a_stream_goes_on_from_the_state_of_the_batch_before(network: NetworkConfig) -> None:
    encoder = build(network).double().eval()
    whole = TokenBatch.from_sequences([[1, 2, 0, 1, 2, 2], [0, 1, 1, 2], [2, 2, 1]])
    first = TokenBatch(whole.token[:, :3], torch.tensor([3, 3, 3]))
    second = TokenBatch(whole.token[:, 3:], whole.lengths - 3)
    if not encoder.carries_state:
        with pytest.raises(GraphError, match="does not carry a state on"):
            encoder(second.with_state((torch.zeros(1, 3, 6),)))
        return
    before, expected = encoder(first), encoder(whole)
    rest = encoder(second.with_state(before.state))
    torch.testing.assert_close(rest.root[:2], expected.root[:2])  # the last one has no token
    for row, length in enumerate(whole.lengths.tolist()):
        outputs = torch.cat([before.outputs[row], rest.outputs[row, : length - 3]])
        torch.testing.assert_close(outputs, expected.outputs[row, :length])
    torch.testing.assert_close(rest.state, expected.state)


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig("EfficientBeamTreeGRC", {"beam_size": 2}),
        NetworkConfig("BeamTreeGRC", {"beam_size": 2}),
        NetworkConfig("RecursionInRecursionGRC", {"state_space": False}),
        NetworkConfig("GumbelTreeLSTM", {}),
        NetworkConfig("SPINN", {"transitions": "reinforced", "tracker_size": 3}),
        NetworkConfig("CRvNN", {}),
        NetworkConfig("RRNet", {"policy_size": 3}),
        NetworkConfig("DisjointTreeLSTM", {}),
        NetworkConfig("PRPN", {"num_layers": 1}),
    ],
    ids=str,
)
def test_trees_of_sequences_longer_than_the_recursion_limit(network: NetworkConfig) -> None:
    """The limit is lowered, because sequences longer than the usual one take seconds."""
    limit, length = len(inspect.stack(0)) + 100, 250
    torch.manual_seed(0)
    encoder = network.replace(hidden_size=2, form="leaves").build(Vocabulary([*"xyz", "<eos>"], [("f", 2)])).train()
    short, batch = (TokenBatch(torch.randint(0, 3, (1, n)), torch.tensor([n])) for n in (5, length))
    encoder(short).root.sum().backward()  # what is compiled at first use takes more frames
    encoder.zero_grad()
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        encoder(batch).root.sum().backward()
        (tree,) = encoder.induced_trees(batch)
        num_leaves = sum(1 for _ in tree.leaves())
    finally:
        sys.setrecursionlimit(usual)
    assert num_leaves == length > limit
    gradient = encoder.embedding.weight.grad
    assert gradient is not None
    assert gradient.isfinite().all()


@every_network
def test_sequences_and_batches_of_nothing_have_encodings_of_zero_and_no_gradients(network: NetworkConfig) -> None:
    encoder = build(network)
    inputs = torch.randn(3, 4, encoder.embedding_size)
    assert not encoder.read(inputs, torch.tensor([2, 0, 4])).encoding[1].any()
    for shape in ((0, 0), (0, 3), (2, 0), (2, 3)):
        nothing = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape[0], dtype=torch.int64)
        found = encoder(TokenBatch(*nothing), trace=True)
        assert found.root.shape == (shape[0], 1, 6)
        assert not found.root.any()
        assert all(len(value) == shape[0] for value in found.trace.values())
        encoder.zero_grad()
        found.root.sum().backward()
        assert all(each.grad is None or not each.grad.any() for each in encoder.parameters())
    assert encoder(TreeBatch.from_trees([], VOCABULARY, trees_per_example=2)).root.shape == (0, 2, 6)


@every_network
def test_encodings_keep_the_precision_of_the_weights_under_autocast(network: NetworkConfig) -> None:
    encoder = build(network).eval()
    inputs = torch.randn(3, 4, encoder.embedding_size)
    with torch.no_grad():
        for lengths in (torch.tensor([4, 2, 3]), torch.tensor([4, 0, 3])):
            expected = encoder.read(inputs, lengths)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = encoder.read(inputs, lengths, trace=True)
            assert found.encoding.dtype == found.outputs.dtype == torch.float32
            assert {values.dtype for values in found.trace.values()} <= {torch.float32}
            torch.testing.assert_close(found.encoding, expected.encoding, rtol=0.05, atol=0.05)


@every_network
def test_a_seed_makes_the_weights_and_what_is_dropped(network: NetworkConfig) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=5, size=12), VOCABULARY)
    first, roots = build(network), []
    for encoder in (first, build(network)):
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


@every_network
def test_an_encoder_is_rebuilt_from_its_plain_options(network: NetworkConfig) -> None:
    encoder = build(network)
    again = type(encoder)(vocabulary=VOCABULARY, **json.loads(json.dumps(encoder.options)))
    again.load_state_dict(encoder.state_dict())
    assert again.options == encoder.options
    for name, value in network.options.items():
        assert f"{name}={value!r}" in repr(encoder)
        assert encoder.options[name] == value


@pytest.mark.parametrize("name", [*(name for name in OPTIONS if name not in ("LSTM", "ONLSTM")), "DisjointTreeLSTM"])
def test_the_engine_can_be_changed_and_the_options_with_it(name: str) -> None:
    encoder: Any = NetworkConfig(name, {"hidden_size": 20}).build(VOCABULARY)
    encoder.engine = "naive"
    assert encoder.options["engine"] == "naive"
    assert "engine='naive'" in repr(encoder)
    with pytest.raises(RecipeError, match="did you mean naive"):
        encoder.engine = "navie"
    assert encoder.engine == encoder.options["engine"] == "naive"


@pytest.mark.parametrize("network", [*NETWORKS, *NEEDS_THE_BATCH], ids=str)
def test_a_trained_model_comes_back_from_its_checkpoint(network: NetworkConfig, tmp_path: Path) -> None:
    config = network.replace(hidden_size=6)
    with torch.device("meta"):
        assert all(parameter.is_meta for parameter in Model(MoreX(), config).parameters())
    data, options = toy_data(12), TrainingOptions(epochs=1, accelerator="cpu")
    result = fit(MoreX(), config, data, options, output=tmp_path, progress=False)
    loaded = treemem.load(tmp_path)
    assert loaded.encoder.options == result.model.encoder.options
    np.testing.assert_array_equal(loaded.predict(data), result.model.predict(data))
    torch.manual_seed(0)
    untrained: Any = Model(MoreX(), config).state_dict()
    assert any(not torch.equal(value, untrained[name]) for name, value in loaded.state_dict().items())


@every_network
def test_lengths_and_tokens_may_be_whole_numbers_of_any_type(network: NetworkConfig) -> None:
    encoder = build(network).double().eval()
    token, lengths = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]), torch.tensor([4, 0, 1, 2])
    inputs = encoder.embed(token).detach()
    expected = [encoder.read(inputs, lengths).encoding, encoder(TokenBatch(token, lengths)).root]
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.uint16, torch.uint64):
        found = [encoder.read(inputs, lengths.to(dtype)), encoder(TokenBatch(token.to(dtype), lengths.to(dtype)))]
        torch.testing.assert_close([found[0].encoding, found[1].root], expected, rtol=0, atol=0)


@every_network
def test_what_does_not_fit_is_refused(network: NetworkConfig) -> None:
    encoder = build(network)
    size = encoder.embedding_size
    good, batch = torch.zeros(2, 3, size), TreeBatch.from_trees(["x"], VOCABULARY)
    for lengths in ([4, 1], [3, -1], [3], [3, 1, 1]):
        with pytest.raises(GraphError, match="lengths from 0 to 3"):
            encoder.read(good, torch.tensor(lengths))
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(GraphError, match="lengths must be whole numbers"):
            encoder.read(good, torch.tensor([3, 1]).to(dtype))
    for shape in ((2, 3, size + 1), (2, 3), (2, 3, size, 1)):
        with pytest.raises(GraphError, match="inputs"):
            encoder.read(torch.zeros(shape), torch.tensor([3, 1]))
    with pytest.raises(GraphError, match="features"):
        encoder(batch, torch.zeros(batch.num_nodes, 2))


def test_token_batches_and_graphs_are_read_as_trees_are() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=5, size=12), VOCABULARY)
    for network in NETWORKS:
        encoder = build(network).eval()
        for other in (TokenBatch(*encoder.tokens(batch)), batch.graph):
            torch.testing.assert_close(encoder(other).root, encoder(batch).root)


def test_numbers_that_are_values_are_refused() -> None:
    vocabulary = Vocabulary(["x"], [("f", 2)], number="Number")
    trees = [treemem.Tree("f", ["x", "x"]), treemem.Tree("f", ["x", treemem.Tree("Number", value=3.0)])]
    encoder = treemem.nn.LSTM(4, vocabulary)
    assert encoder(TreeBatch.from_trees(trees[:1], vocabulary)).root.shape == (1, 1, 4)
    for form in ("leaves", "preorder"):
        encoder = treemem.nn.LSTM(4, vocabulary, form=form)
        with pytest.raises(GraphError, match=r"tree 2, node 2 .* has the value 3.0"):
            encoder(TreeBatch.from_trees(trees, vocabulary))


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


@pytest.mark.parametrize("network", [each for each in NETWORKS if each.network == "MemoryRNN"], ids=str)
def test_vectors_of_whole_numbers_give_the_outputs_of_the_same_numbers(network: NetworkConfig) -> None:
    encoder = build(network).eval()
    inputs, lengths = torch.randint(-2, 3, (3, 12, encoder.embedding_size)), torch.tensor([12, 5, 0])
    found, expected = (encoder.read(each, lengths) for each in (inputs, inputs.float()))
    torch.testing.assert_close([found.encoding, found.outputs], [expected.encoding, expected.outputs], rtol=0, atol=0)
