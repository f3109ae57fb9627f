"""GELU in C++."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from treemem.native import TYPE_NAMES, compile_mode, native_library

SIZE, INNER = 5, 7


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
