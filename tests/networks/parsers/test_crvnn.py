"""Continuous recursion: engines, options, penalty and dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.native import compile_mode
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.parsers.crvnn.equations import CRvNNWeights, TransitionFeatures
from treemem.networks.parsers.crvnn.native import native_steps
from treemem.networks.parsers.crvnn.run import continuous_recursion
from treemem.ops import compile_steps

SIZE, FEATURES = 4, 3
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
compiled = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def tensors(options: dict[str, Any], seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    added = options.get("equation") == 6  # to the states, so of their width
    features = SIZE if added else FEATURES
    width = (2 * options.get("num_neighbors", 2) + 1) * SIZE + (0 if added or "features" in options else features)
    maps = [(6, 2 * SIZE), (4 * SIZE, 6), (SIZE, width), (1, SIZE)]
    shapes = [shape for map_shape in maps for shape in (map_shape, map_shape[:1])]
    return [torch.randn(shape).double() / 2 for shape in [*shapes, (SIZE,), (SIZE,), (2, SIZE), *[(features,)] * 2]]


def weights(of: list[Tensor], options: dict[str, Any]) -> CRvNNWeights:
    hidden, gates, window, score, norm = (Affine(*of[first : first + 2]) for first in range(0, 10, 2))
    own = {"features": TransitionFeatures(*of[11:]), **options}
    return CRvNNWeights(GatedCellWeights(hidden, gates, norm), window, score, **own)


def leaves_of(lengths: tuple[int, ...]) -> Tensor:
    torch.manual_seed(1)
    leaves = torch.randn(len(lengths), max(lengths, default=0) + 1, SIZE).double()
    for row, length in enumerate(lengths):
        leaves[row, length:] = torch.nan
    return leaves


@compiled
def test_the_fused_engine_is_in_cpp_where_it_can_be() -> None:
    own, lengths = weights(tensors({}), {}), torch.tensor([2, 1])
    states = torch.zeros(2, 4, SIZE).double()
    assert native_steps(states, lengths, own) is not None
    with compile_steps(False):
        assert native_steps(states, lengths, own) is None


@compiled
def test_gradients_with_dropout_are_those_of_the_same_masks() -> None:
    own = [each.requires_grad_() for each in tensors({})]
    leaves, lengths = leaves_of((3, 5)).nan_to_num().requires_grad_(), torch.tensor([3, 5])

    def encoding(values: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return continuous_recursion(values, own[10], lengths, weights(own, {"dropout": 0.4})).encoding

    assert torch.autograd.gradcheck(encoding, (leaves, *own), fast_mode=True)


@compiled
def test_dropout_has_its_mean_and_sequences_have_masks_of_their_own() -> None:
    own, copies = tensors({}), 4000
    leaves, lengths = leaves_of((2,))[:, :2].expand(copies, -1, -1), torch.full((copies,), 2)
    with torch.no_grad():
        ends = [
            continuous_recursion(leaves, own[10], lengths, weights(own, {"dropout": 0.5}), engine=engine).encoding
            for engine in ("fused", "naive", "fused")
        ]
    assert len(ends[0].unique(dim=0)) > 20
    assert not torch.equal(ends[0], ends.pop())
    for moment in (1, 2):
        torch.testing.assert_close(*(each.pow(moment).mean(0) for each in ends), rtol=0, atol=0.05)


def test_everything_dropped_is_the_same_on_both_engines() -> None:
    own, leaves, lengths = tensors({}), leaves_of((5, 3)), torch.tensor([5, 3])
    dropped = weights(own, {"dropout": 1.0})
    both = [continuous_recursion(leaves, own[10], lengths, dropped, engine=engine).encoding for engine in ENGINES]
    torch.testing.assert_close(*both)
    assert not torch.allclose(both[0], continuous_recursion(leaves, own[10], lengths, weights(own, {})).encoding)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_penalty_is_zero_if_at_some_step_only_the_last_token_is_left(engine: SequenceEngine) -> None:
    own, leaves, lengths = tensors({}), leaves_of((1, 6)), torch.tensor([1, 6])
    kept = continuous_recursion(leaves, own[10], lengths, weights(own, {"threshold": 1e-9}), engine=engine)
    assert kept.penalty[0] == 0
    assert kept.penalty[1] > 0

    options = {"equation": 6}  # has no exception
    own = tensors(options)
    assert continuous_recursion(leaves, own[10], lengths, weights(own, options), engine=engine).penalty[0] > 0
