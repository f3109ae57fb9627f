"""Networks over sequences in Triton kernels, which run in the interpreter on a fake device: equal to the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, FakeDevice, FakeLauncher, fake_device
from sequence_networks import made, results, with_gradients
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.cuda.choice import cuda_kernels
from treemem.networks.parsers.crvnn import cuda as crvnn
from treemem.networks.parsers.crvnn.run import continuous_recursion
from treemem.networks.parsers.disjoint_tree_lstm.equations import ParserWeights
from treemem.networks.parsers.disjoint_tree_lstm.run import choose_trees
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.networks.parsers.ordered_memory.run import ordered_memory
from treemem.networks.parsers.prpn.cuda import cuda_layer
from treemem.networks.parsers.prpn.equations import ReaderWeights, read_layer

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

LENGTHS = [(0, 4, 2), (1,), ()]
OF_BEAMS = [(3, 4)]  # one of which ends while it has several beams
NETWORKS: dict[str, list[dict[str, Any]]] = {
    "ONLSTM": [{"layer_sizes": [4, 6], "chunk_size": 2, "embedding_size": 3}],
    "CRvNN": [{}, {"transition_features": 0, "window": 3, "modulated": False, "activation": "relu", "threshold": 0.3}],
    "GumbelTreeLSTM": [{"noise": False, "temperature": 0.3}],
    "DisjointTreeLSTM": [{}],
    "OrderedMemory": [
        {"slots": 2, "padding": "left"},
        {"slots": 1, "cell": "rnn"},
        {"slots": 2, "score": "tanh", "cell": "rnn", "bidirectional": True, "padding": "right flipped"},
    ],
    "EfficientBeamTreeGRC": [{"beam_size": 2, "scored_size": 2, "noise": False}],
    "BeamTreeGRC": [{"beam_size": 2, "noise": False}, {"beam_size": 2, "noise": False, "top_k": "onesoft"}],
    "RRNet": [{"transitions": "gold"}],
    "SPINN": [
        {"transitions": "gold", "tracker_size": 0},
        {"transitions": "reinforced", "tracker_size": 3, "temperature": 1e-9},  # at which samples are certain
    ],
    "RecursionInRecursion": [{"beam_size": 2, "chunk_size": 3, "noise": False, "alignment": "none"}],
}


def on_device(network: Any, lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Outputs and gradients of the kernels."""
    with cuda_kernels(True), fake_device():
        try:
            found = results(network.to(DEVICE), lengths, "auto", DEVICE)
            return {name: value.cpu() for name, value in found.items()}
        finally:
            network.cpu()


@pytest.mark.parametrize(
    ("name", "options"), [(name, options) for name, several in NETWORKS.items() for options in several], ids=str
)
def test_outputs_and_gradients_are_those_of_the_definition(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crvnn, "_CELL_NUMBERS", 128)  # so that its cell takes the positions in several parts
    network = made(name, **options).train(name != "DisjointTreeLSTM")  # whose choices are samples in training
    for lengths in OF_BEAMS if name == "RecursionInRecursion" else LENGTHS:
        assert_same(on_device(network, lengths), results(network, lengths, "naive"), f"{lengths}")


@pytest.mark.parametrize(("size", "slots", "longest"), [(6, 3, 4), (10, 1, 1)])
def test_the_reading_network_of_a_prpn_is_that_of_the_definition(size: int, slots: int, longest: int) -> None:
    torch.manual_seed(0)
    shapes = [(2, longest, 4 * size), (2, longest, size), (2, longest, slots), (2, slots, 2 * size)]
    shapes += [(size, size), (4 * size, size), *[(4 * size,)] * 3, *[(size,)] * 3]
    given = [torch.randn(shape).double() for shape in shapes]
    given[2] = (given[2] > 0).double()  # gates, of which all may be closed

    def run(read: Any, device: Any) -> dict[str, Tensor]:
        leaves = [tensor.to(device).requires_grad_() for tensor in given]
        *of_tokens, key, weight, bias, gain, shift, cell_gain, cell_shift, mask = leaves
        weights = ReaderWeights(key, Affine(weight, bias), Affine(gain, shift), Affine(cell_gain, cell_shift))
        history = read(*of_tokens, weights, mask)
        found = with_gradients({"history": history}, {str(at): leaf for at, leaf in enumerate(leaves)})
        return {name: value.cpu() for name, value in found.items()}

    with cuda_kernels(True), fake_device():
        found = run(cuda_layer, DEVICE)
    assert_same(found, run(read_layer, "cpu"), "")


def test_the_parser_of_a_disjoint_tree_lstm_chooses_the_pairs_of_the_definition() -> None:
    torch.manual_seed(0)
    leaves, lengths = torch.randn(6, 6, 4).double(), torch.tensor([6, 6, 5, 6, 3, 6])
    given = [3 * torch.randn(10, 4).double(), torch.randn(10).double(), torch.randn(2).double()]

    def parsed(device: Any) -> Tensor:
        weight, bias, query = (tensor.to(device) for tensor in given)
        return choose_trees(leaves.to(device), lengths, ParserWeights(Affine(weight, bias), query)).cpu()

    with cuda_kernels(True), fake_device():
        places = parsed(DEVICE)
    assert places.equal(parsed("cpu"))


def recursion(network: Any, inputs: Tensor) -> Tensor:
    """States of a CRvNN."""
    lengths = torch.full((len(inputs),), inputs.shape[1])
    return continuous_recursion(inputs, network.ends.vectors, lengths, network.weights()).states


def memory(maps: Any, inputs: Tensor) -> Tensor:
    """Outputs of an Ordered Memory of one slot."""
    return ordered_memory(inputs, torch.full((len(inputs),), inputs.shape[1]), maps.weights(), 1).outputs


@pytest.mark.parametrize(
    ("run", "make"),
    [(recursion, lambda: made("CRvNN")), (memory, lambda: MemoryMaps(6, 6, "gated"))],
    ids=["CRvNN", "Ordered Memory"],
)
def test_under_autocast_kernels_compute_in_the_precision_of_the_weights(
    run: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice()
    launcher = FakeLauncher(device, runs=True)
    launcher.device_type = "cpu"
    monkeypatch.setattr("treemem.engines.cuda.launcher._launcher", launcher)
    torch.manual_seed(0)
    network, inputs = make().float(), torch.randn(1, 2, 6)

    def gradients(outputs: Tensor) -> Any:
        return torch.autograd.grad(outputs.sin().sum(), [*network.parameters()], allow_unused=True)

    with cuda_kernels(True):
        expected, launches = run(network, inputs), device.launches
        with torch.autocast("cpu", torch.bfloat16):
            outputs = run(network, inputs)
        assert device.launches == 2 * launches > 0
        torch.testing.assert_close(outputs, expected, rtol=0, atol=0)
        torch.testing.assert_close(gradients(outputs), gradients(expected), rtol=0, atol=0)
