"""Continuous recursion: engines, options, penalty and dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.parsers.crvnn.equations import CRvNNWeights, TransitionFeatures
from treemem.networks.parsers.crvnn.native import native_steps
from treemem.networks.parsers.crvnn.run import continuous_recursion
from treemem.ops import compile_steps

SIZE, FEATURES = 4, 3
LENGTHS = [(5, 1, 9, 0, 2, 3), (4, 4), (2,), (1, 1), (0, 0), ()]
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
compiled = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
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


def run(lengths: tuple[int, ...], options: dict[str, Any], engine: SequenceEngine, seed: int = 0) -> dict[str, Tensor]:
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
    for seed in range(4):
        expected, found = (run(lengths, options, engine, seed) for engine in ENGINES)
        assert_same(found, expected, f"seed {seed}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_sequence_is_read_as_if_alone(options: dict[str, Any], engine: SequenceEngine) -> None:
    own, lengths = tensors(options), torch.tensor(LENGTHS[0])
    leaves = leaves_of(LENGTHS[0]).requires_grad_()

    def results(rows: slice) -> dict[str, Tensor]:
        found = continuous_recursion(leaves[rows], own[10], lengths[rows], weights(own, options), engine=engine)
        (gradient,) = torch.autograd.grad((found.encoding.sin().sum() + found.penalty.sum()), leaves)
        return {name: each.detach() for name, each in (*found._asdict().items(), ("gradient", gradient[rows]))}

    together = results(slice(None))
    for row in lengths.nonzero().flatten().tolist():
        alone = results(slice(row, row + 1))
        assert_same(alone, {name: each[row : row + 1] for name, each in together.items()}, f"row {row}")


@compiled
def test_the_fused_engine_is_in_cpp_where_it_can_be() -> None:
    own, lengths = weights(tensors({}), {}), torch.tensor([2, 1])
    states = torch.zeros(2, 4, SIZE).double()
    assert native_steps(states, lengths, own) is not None
    with compile_steps(False):
        assert native_steps(states, lengths, own) is None


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("options", [{}, {"equation": 6, "threshold": 0.3}], ids=str)
def test_threads_take_sequences_and_change_nothing(options: dict[str, Any], threads: int) -> None:
    lengths = tuple(1 + 7 * index % 23 for index in range(90))
    with torch_threads(1):
        expected = run(lengths, options, "fused")
    with torch_threads(threads):
        assert_same(run(lengths, options, "fused"), expected, "threads")


@compiled
def test_gradients_with_dropout_are_those_of_the_same_masks() -> None:
    own = [each.requires_grad_() for each in tensors({})]
    leaves, lengths = leaves_of((3, 5)).nan_to_num().requires_grad_(), torch.tensor([3, 5])

    def encoding(values: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return continuous_recursion(values, own[10], lengths, weights(own, {"dropout": 0.4})).encoding

    assert torch.autograd.gradcheck(encoding, (leaves, *own))


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


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    own = [each.requires_grad_() for each in tensors({})]
    leaves, lengths = leaves_of((4, 7)), torch.tensor([4, 7])
    found = continuous_recursion(leaves, own[10], lengths, weights(own, {"dropout": 0.2}))
    first, second = (torch.autograd.grad(found.encoding.sin().sum(), own[:8], retain_graph=True) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


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
