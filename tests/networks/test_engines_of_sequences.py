"""Every engine of a sequence network against its definition: each output and each gradient, whatever the options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from tree_strategies import VOCABULARY, random_forest

from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks import NetworkConfig
from treemem.networks.parsers.diora import batched
from treemem.networks.sequence_encoder import SequenceEncoder
from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch

SIZE = 6
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
CASES = [NetworkConfig(name, options) for name, several in OPTIONS.items() for options in several]
NEEDS_TREES = ("gold", "predicted")


def made(config: NetworkConfig, dtype: torch.dtype = torch.float64) -> Any:
    """A network without a parameter that is 0 or 1 by its initialisation, which would hide mistakes."""
    torch.manual_seed(0)
    network = config.replace(hidden_size=SIZE).build(VOCABULARY)
    assert isinstance(network, SequenceEncoder)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return network.to(dtype)


def results(network: Any, lengths: tuple[int, ...], engine: str) -> dict[str, torch.Tensor]:
    """All outputs and losses, and the gradient of the inputs and of every parameter; padding is NaN."""
    dtype = next(network.parameters()).dtype
    network.engine = engine
    network.zero_grad()
    leaves: dict[str, torch.Tensor] = {}
    if network.options.get("transitions") in NEEDS_TREES:
        forest = random_forest(seed=len(lengths), num_trees=len(lengths), size=max(lengths, default=0) + 1)
        read = network(TreeBatch.from_forest(forest, VOCABULARY), trace=True)
        found = {"encoding": read.root}
    else:
        longest = max(lengths, default=0) + 1
        inputs = torch.randn(len(lengths), longest, network.embedding_size, generator=torch.Generator().manual_seed(1))
        inputs[torch.arange(longest) >= torch.tensor(lengths, dtype=torch.int64)[:, None]] = torch.nan
        leaves["inputs"] = inputs.to(dtype).requires_grad_()
        read = network.read(leaves["inputs"], torch.tensor(lengths, dtype=torch.int64), trace=True)
        found = {"encoding": read.encoding}
    found |= {"outputs": read.outputs} | {name: each.sum for name, each in read.auxiliary_losses.items()} | read.trace
    learned = [each for each in found.values() if each.requires_grad]
    weights = [torch.cos(0.7 * torch.arange(each.numel(), dtype=dtype)).view(each.shape) for each in learned]
    total = sum((each.nan_to_num() * weight).sum() for each, weight in zip(learned, weights, strict=True))
    if torch.is_tensor(total):
        total.backward()
    for name, leaf in [*network.named_parameters(), *leaves.items()]:
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()
    return {name: each.detach() for name, each in found.items()}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("config", CASES, ids=str)
def test_every_engine_equals_the_definition(config: NetworkConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition reads sequence by sequence, so neither the batch nor the number of threads has an effect."""
    network = made(config)
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
    config = NetworkConfig(name, OPTIONS[name][0])
    exact = results(made(config), LENGTHS[0], "naive")
    rounded = results(made(config, torch.float32), LENGTHS[0], "naive")
    found = results(made(config, torch.float32), LENGTHS[0], "auto")
    for key, value in exact.items():
        largest = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        tolerance = 1e-4 * largest + 4 * float((rounded[key].nan_to_num() - value.nan_to_num()).abs().max())
        torch.testing.assert_close(
            found[key].to(value), value, rtol=0, atol=tolerance, equal_nan=True, msg=lambda text, key=key: key + text
        )
