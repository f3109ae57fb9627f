"""Continuous recursion: dropout, penalty and short numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sequence_networks import SIZE, made, padded_inputs
from torch import Tensor

from treemem.engines.sequence_engine import SequenceEngine
from treemem.native import compile_mode
from treemem.networks.parsers.crvnn.run import continuous_recursion
from treemem.nn import CRvNN

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
compiled = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def run(
    network: CRvNN, leaves: Tensor, lengths: tuple[int, ...], engine: SequenceEngine = "fused", **changes: Any
) -> Any:
    weights = network.weights()._replace(**changes)
    return continuous_recursion(leaves, network.ends.vectors, torch.tensor(lengths), weights, engine=engine)


@compiled
def test_gradients_with_dropout_are_those_of_the_same_masks() -> None:
    network = made("CRvNN")
    leaves = padded_inputs((3, 5), SIZE).nan_to_num().requires_grad_()

    def encoding(values: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return run(network, values, (3, 5), dropout=0.4).encoding

    assert torch.autograd.gradcheck(encoding, (leaves, *network.parameters()), fast_mode=True)


@compiled
def test_dropout_has_its_mean_and_sequences_have_masks_of_their_own() -> None:
    network, leaves = made("CRvNN"), padded_inputs((2,), SIZE, longer=0).expand(4000, -1, -1)
    with torch.no_grad():
        ends = [
            run(network, leaves, (2,) * 4000, engine, dropout=0.5).encoding for engine in ("fused", "naive", "fused")
        ]
    assert len(ends[0].unique(dim=0)) > 20
    assert not torch.equal(ends[0], ends.pop())
    for moment in (1, 2):
        torch.testing.assert_close(*(each.pow(moment).mean(0) for each in ends), rtol=0, atol=0.05)


def test_everything_dropped_is_the_same_on_both_engines() -> None:
    network, leaves = made("CRvNN"), padded_inputs((5, 3), SIZE)
    both = [run(network, leaves, (5, 3), engine, dropout=1.0).encoding for engine in ENGINES]
    torch.testing.assert_close(*both)
    assert not torch.allclose(both[0], run(network, leaves, (5, 3)).encoding)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_penalty_is_zero_if_at_some_step_only_the_last_token_is_left(engine: SequenceEngine) -> None:
    leaves = padded_inputs((1, 6), SIZE)
    penalty = run(made("CRvNN", threshold=1e-9), leaves, (1, 6), engine).penalty
    assert penalty[0] == 0
    assert penalty[1] > 0
    assert run(made("CRvNN", equation=6), leaves, (1, 6), engine).penalty[0] > 0, "which has no exception"


@pytest.mark.parametrize("engine", ["auto", "naive"])
@pytest.mark.parametrize("equation", [5, 6])
def test_it_reads_in_bfloat16(engine: str, equation: int) -> None:
    torch.manual_seed(0)
    encoder = made("CRvNN", equation=equation, engine=engine).float()
    encoder.reset_parameters()
    inputs, lengths = torch.randn(3, 4, SIZE), torch.tensor([4, 1, 0])
    expected = encoder.read(inputs, lengths)
    found = encoder.bfloat16().read(inputs.bfloat16(), lengths)
    assert found.encoding.dtype == found.auxiliary_losses["halt"].sum.dtype == torch.bfloat16
    torch.testing.assert_close(found.encoding.float(), expected.encoding, rtol=0.1, atol=0.1)
