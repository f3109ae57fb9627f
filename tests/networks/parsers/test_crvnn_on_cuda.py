"""The kernels of continuous recursion, in Triton's interpreter on a fake device: dropout, passes again, limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, fake_device
from sequence_networks import made, padded_inputs
from torch import Tensor

from treemem.networks.parsers.crvnn.cuda import kernel_steps
from treemem.ops import cuda_kernels

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

LENGTHS = (3,)


def passes(network: Any, device: Any, times: int = 1) -> dict[str, Tensor]:
    """What a network reads without gradients, and with them; and the gradients of so many backward passes."""
    inputs = padded_inputs(LENGTHS, network.embedding_size).to(device)
    lengths = torch.tensor(LENGTHS)
    with torch.no_grad():
        found = {"without gradients": network.read(inputs, lengths).encoding}
    found["encoding"] = network.read(inputs, lengths).encoding
    network.zero_grad()
    for _ in range(times):
        (found["encoding"] ** 2).sum().backward(retain_graph=True)
    gradients = {name: each.grad for name, each in network.named_parameters() if each.grad is not None}
    return {name: value.detach().cpu() for name, value in {**found, **gradients}.items()}


def on_device(network: Any, times: int = 1) -> dict[str, Tensor]:
    with cuda_kernels(True), fake_device():
        try:
            return passes(network.to(DEVICE), DEVICE, times)
        finally:
            network.cpu()


def test_dropout_acts_on_the_hidden_layer_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that drops nothing, and multiplies what it keeps, shows where it acts. A second pass gives the same."""
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda values, rate=0.5: values / (1 - rate))
    monkeypatch.setattr(Tensor, "bernoulli_", lambda values, rate: values.fill_(1))
    network = made("CRvNN", dropout=0.3)
    found = on_device(network, times=2)
    network.engine = "naive"
    expected = passes(network, "cpu", times=2)
    assert_same(found, expected, "dropout")
    network.dropout = 0.0
    assert not torch.allclose(passes(network, "cpu")["encoding"], expected["encoding"])


def test_torch_runs_where_blocks_would_be_too_large_and_with_equation_6() -> None:
    network, other = made("CRvNN"), made("CRvNN", equation=6)
    with cuda_kernels(True), fake_device():
        states, lengths = torch.randn(1, 64, 6, dtype=torch.float64).to(DEVICE), torch.tensor([1]).to(DEVICE)
        weights = network.to(DEVICE).weights()
        assert kernel_steps(states[:, :3].contiguous(), lengths, weights) is not None
        assert kernel_steps(torch.cat([states, states], 1), lengths, weights) is None
        assert kernel_steps(states[:, :3], lengths, other.to(DEVICE).weights()) is None
