"""Functions of a number that Triton does not have."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def hyperbolic_tangent(x):
    """``tanh(x)``."""
    return 1 - 2 / (tl.exp(2 * x) + 1)
