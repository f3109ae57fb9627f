"""The gated recursive cell over levels, against the cell node by node; GELU in C++."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import pytest
import torch
from engine_parity import assert_same
from torch.nn import functional

from treemem.engines.affine import Affine
from treemem.native import TYPE_NAMES, compile_mode, native_library
from treemem.networks.gated_cell.equations import CellActivation, GatedCellWeights, gated_cell
from treemem.networks.gated_cell.levels import Levels, gated_levels

SIZE, INNER = 5, 7


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


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("sizes", [[], [1], [70, 3], [40, 130, 1]], ids=str)
def test_levels_are_the_cell_node_by_node(sizes: list[int], activation: CellActivation) -> None:
    levels, weights = shared_levels(6, sizes), new_weights()
    leaves = torch.randn(6, SIZE, dtype=torch.float64).requires_grad_()
    keep = functional.dropout(torch.ones(sum(sizes), INNER, dtype=torch.float64), 0.4)
    parameters = [tensor for affine in weights for tensor in affine]
    results = []
    for run in (by_node, gated_levels):
        states = run(leaves, levels, weights, keep, activation)
        given = torch.linspace(-1, 1, states.numel(), dtype=torch.float64).view(states.shape)
        gradients = torch.autograd.grad((states * given).sum(), [leaves, *parameters], materialize_grads=True)
        results.append({"states": states.detach(), **{str(at): each for at, each in enumerate(gradients)}})
    assert_same(results[1], results[0], "levels")


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
