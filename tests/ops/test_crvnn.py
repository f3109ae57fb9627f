"""Continuous recursion: engines, options, penalty and dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.ops.affine import Affine
from treemem.ops.crvnn import CRvNNEngine, CRvNNWeights, TransitionFeatures, continuous_recursion
from treemem.ops.gated_recursive import GatedCellWeights

SIZE, FEATURES = 4, 3
LENGTHS = [(5, 1, 9, 0, 2, 3), (4, 4), (2,), (1, 1), (0, 0), ()]
ENGINES: tuple[CRvNNEngine, ...] = ("naive", "fused")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"threshold": 0.3},
    {"features": None, "num_neighbors": 1, "modulated": False, "activation": "relu"},
    {"features": None, "num_neighbors": 3, "threshold": 0.1},
    {"equation": 6, "threshold": 0.05},
    {"equation": 6, "features": None, "num_neighbors": 1, "modulated": False},
]


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


def run(lengths: tuple[int, ...], options: dict[str, Any], engine: CRvNNEngine, seed: int = 0) -> dict[str, Tensor]:
    """All results and all gradients."""
    leaves = leaves_of(lengths).requires_grad_()
    own = [each.requires_grad_() for each in tensors(options, seed)]
    length = torch.tensor(lengths, dtype=torch.int64)
    found = continuous_recursion(leaves, own[10], length, weights(own, options), engine=engine)
    differentiable = (found.states, found.encoding, found.penalty)
    weighted = [(torch.cos(torch.arange(each.numel())).view(each.shape) * each).sum() for each in differentiable]
    torch.stack([*weighted, 0 * own[0].sum()]).sum().backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (leaves, *own)]
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    return {**{name: each.detach() for name, each in found._asdict().items()}, **named}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_fused_engine_equals_the_naive_one(options: dict[str, Any], lengths: tuple[int, ...]) -> None:
    """The naive engine reads sequence by sequence, so the batch has no effect either."""
    for seed in range(4):
        expected, found = (run(lengths, options, engine, seed) for engine in ENGINES)
        assert_same(found, expected, f"seed {seed}")


def test_everything_dropped_is_the_same_on_both_engines() -> None:
    own, leaves, lengths = tensors({}), leaves_of((5, 3)), torch.tensor([5, 3])
    dropped = weights(own, {"dropout": 1.0})
    both = [continuous_recursion(leaves, own[10], lengths, dropped, engine=engine).encoding for engine in ENGINES]
    torch.testing.assert_close(*both)
    assert not torch.allclose(both[0], continuous_recursion(leaves, own[10], lengths, weights(own, {})).encoding)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_penalty_is_zero_if_at_some_step_only_the_last_token_is_left(engine: CRvNNEngine) -> None:
    own, leaves, lengths = tensors({}), leaves_of((1, 6)), torch.tensor([1, 6])
    kept = continuous_recursion(leaves, own[10], lengths, weights(own, {"threshold": 1e-9}), engine=engine)
    assert kept.penalty[0] == 0
    assert kept.penalty[1] > 0

    options = {"equation": 6}  # has no exception
    own = tensors(options)
    assert continuous_recursion(leaves, own[10], lengths, weights(own, options), engine=engine).penalty[0] > 0
