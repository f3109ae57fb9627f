"""GELU as it is printed in C++, also of numbers that are far from 0."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from treemem.engines.printer.driven import DrivenStep
from treemem.native import compile_mode
from treemem.native.structures import structured_library

STEP = DrivenStep("GELU_STEP", lambda products, children: {"h": functional.gelu(products["x"])}, {"x": 1}, "h", 0)


@pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_gelu_and_its_derivative_are_those_of_torch(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.cat([torch.linspace(-40, 40, 8001), torch.tensor([0.0, -0.0, 1e-30, 1e30, -1e30, torch.inf])]).to(dtype)
    library = structured_library(Path(__file__).with_name("gelu.cpp"), [x], STEP)
    assert library is not None

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = [x.clone(), torch.empty_like(x), torch.ones_like(x), torch.empty_like(x)]
        library.run(*(ctypes.c_void_p(each.data_ptr()) for each in tensors), ctypes.c_int64(len(x)))
        return tensors[1], tensors[3]

    value, slope = run(x)
    argument = x.double().clone().requires_grad_()
    expected = functional.gelu(argument)
    (expected_slope,) = torch.autograd.grad(expected.sum(), argument)
    torch.testing.assert_close(value.double(), expected.detach(), rtol=tolerance, atol=tolerance)
    finite = expected_slope.isfinite()  # torch has none at infinity
    torch.testing.assert_close(slope.double()[finite], expected_slope[finite], rtol=tolerance, atol=tolerance)
    for each in run(torch.full_like(x, torch.nan)):
        assert each.isnan().all()
