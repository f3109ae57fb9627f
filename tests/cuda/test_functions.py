"""Functions of Triton's blocks against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_device import HAS_INTERPRETER

if HAS_INTERPRETER:
    import triton
    import triton.language as tl

    from treemem.engines.cuda.functions import hyperbolic_tangent

    @triton.jit
    def tangents(x, results, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
        """``tanh`` of all numbers."""
        place = tl.arange(0, SIZE)
        tl.store(results + place, hyperbolic_tangent(tl.load(x + place)))


@pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_hyperbolic_tangent_is_exact_to_a_few_units_of_its_last_place(dtype: torch.dtype) -> None:
    positive = np.concatenate([10.0 ** np.arange(-30, 0), np.linspace(0.1, 0.9, 31), [2.0, 60.0, np.inf]])
    x = torch.tensor(np.concatenate([positive, -positive]), dtype=dtype)
    results = torch.empty_like(x)
    with np.errstate(over="ignore"):
        tangents[(1,)](x, results, SIZE=len(x))
    np.testing.assert_allclose(results.numpy(), np.tanh(x.double().numpy()), rtol=4 * torch.finfo(dtype).eps)
