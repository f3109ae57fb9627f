"""The gated recursive cell over levels and over pairs: in C++ and in torch, against the cell node by node."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch.nn import functional

from treemem.ops import compile_mode, compile_steps
from treemem.ops.affine import Affine
from treemem.ops.gated_recursive import (
    CellActivation,
    GatedCellWeights,
    GatedNodes,
    Levels,
    gated_cell,
    gated_levels,
    gated_pairs,
)
from treemem.ops.native import TYPE_NAMES, native_library
from treemem.ops.threads import torch_threads

SIZE, INNER = 5, 7
ENGINES = ["torch", pytest.param("C++", marks=pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler"))]


@contextlib.contextmanager
def engine_of(name: str) -> Iterator[None]:
    with compile_steps(name == "C++"):
        yield


def new_weights() -> GatedCellWeights:
    generator = torch.Generator().manual_seed(3)
    shapes = (INNER, 2 * SIZE), (INNER,), (4 * SIZE, INNER), (4 * SIZE,), (SIZE,), (SIZE,)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    return GatedCellWeights(*(Affine(*drawn[at : at + 2]) for at in (0, 2, 4)))


def shared_levels(leaves: int, sizes: list[int]) -> Levels:
    """Levels whose nodes read any rows below them, so that some rows have several parents and some none."""
    generator = torch.Generator().manual_seed(leaves)
    children, ends, below = [], [], leaves
    for size in sizes:
        children.append(torch.randint(below, (size, 2), generator=generator))
        below += size
        ends.append(below - leaves)
    return Levels(torch.cat([*children, torch.empty(0, 2, dtype=torch.int64)]), ends)


def by_node(
    leaves: torch.Tensor, levels: Levels, weights: GatedCellWeights, keep: torch.Tensor, activation: CellActivation
) -> torch.Tensor:
    rows = list(leaves)
    for (left, right), own in zip(levels.children.tolist(), keep, strict=True):
        rows.append(gated_cell(rows[left][None], rows[right][None], weights, own[None], activation)[0])
    return torch.stack(rows)


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", [[], [1], [70, 3], [40, 130, 1]], ids=str)
def test_levels_are_the_cell_node_by_node(
    sizes: list[int], threads: int, activation: CellActivation, engine: str
) -> None:
    levels, weights = shared_levels(6, sizes), new_weights()
    leaves = torch.randn(6, SIZE, dtype=torch.float64).requires_grad_()
    keep = functional.dropout(torch.ones(sum(sizes), INNER, dtype=torch.float64), 0.4)
    parameters = [tensor for affine in weights for tensor in affine]
    results = []
    for run in (by_node, gated_levels):
        with torch_threads(threads), engine_of(engine):
            states = run(leaves, levels, weights, keep, activation)
            given = torch.linspace(-1, 1, states.numel(), dtype=torch.float64).view(states.shape)
            gradients = torch.autograd.grad((states * given).sum(), [leaves, *parameters], materialize_grads=True)
        results.append({"states": states.detach(), **{str(at): each for at, each in enumerate(gradients)}})
    assert_same(results[1], results[0], engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_pairs_are_the_cell(dropout: float, activation: CellActivation, engine: str) -> None:
    weights = new_weights()
    left, right = (torch.randn(5, SIZE).double().requires_grad_() for _ in range(2))
    keep = functional.dropout(torch.ones(5, INNER).double(), dropout) if dropout else None
    results = []
    for run in (gated_cell, gated_pairs):
        with engine_of(engine):
            pairs = (left, right) if run is gated_cell else (torch.stack([left, right]),)
            out = run(*pairs, weights, keep, activation)
            read = [left, right, *(tensor for affine in weights for tensor in affine)]
            gradients = torch.autograd.grad((out * out.detach().cos()).sum(), read)
        results.append({"out": out.detach(), **{str(at): each for at, each in enumerate(gradients)}})
    assert_same(results[1], results[0], engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_backward_pass_gives_the_same_gradients(engine: str) -> None:
    weights, levels = new_weights(), shared_levels(4, [5, 2])
    leaves = torch.randn(4, SIZE).double().requires_grad_()
    with engine_of(engine):
        out = gated_levels(leaves, levels, weights).sin().sum()
        first, second = (torch.autograd.grad(out, [leaves, *weights.gates], retain_graph=True) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler")
def test_after_a_failed_backward_pass_run_forward_again(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = torch.randn(4, SIZE, dtype=torch.float64, requires_grad=True)
    states = gated_levels(leaves, shared_levels(4, [2, 1]), new_weights())
    gradients = GatedNodes.gradients

    def fail(*arguments: Any) -> None:
        gradients(*arguments)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(GatedNodes, "gradients", fail)
        with pytest.raises(MemoryError):
            states.sum().backward()
    with pytest.raises(RuntimeError, match="run the forward pass again"):
        states.sum().backward()


@pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler")
def test_hooks_must_keep_the_shape() -> None:
    leaves = torch.randn(4, SIZE, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each[:1]):
        states = gated_levels(leaves, shared_levels(4, [2, 1]), new_weights())
    with pytest.raises(RuntimeError, match="keep the shape"):
        states.sum().backward()


@pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_gelu_and_its_derivative_are_those_of_torch(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.cat([torch.linspace(-40, 40, 8001), torch.tensor([0.0, -0.0, 1e-30, 1e30, -1e30, torch.inf])]).to(dtype)
    library = native_library(Path(__file__).with_name("gelu.cpp"), [x], f"REAL={TYPE_NAMES[dtype]}")
    assert library is not None
    value, slope = torch.empty_like(x), torch.empty_like(x)
    run = partial(
        library.run, *(ctypes.c_void_p(each.data_ptr()) for each in (x, value, slope)), ctypes.c_int64(len(x))
    )
    run()
    argument = x.double().clone().requires_grad_()
    expected = functional.gelu(argument)
    (expected_slope,) = torch.autograd.grad(expected.sum(), argument)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=tolerance, atol=tolerance)
    finite = expected_slope.isfinite()  # torch has none at infinity
    torch.testing.assert_close(slope.double()[finite], expected_slope[finite], rtol=tolerance, atol=tolerance)
    x.fill_(torch.nan)
    run()
    assert value.isnan().all()
    assert slope.isnan().all()
