"""Functions of a number that Triton does not have."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def hyperbolic_tangent(x):
    """``tanh(x)``."""
    return 1 - 2 / (tl.exp(2 * x) + 1)


@triton.jit
def softplus(x):
    """``log(1 + exp(x))``, with torch's threshold."""
    return tl.where(x > 20, x, tl.log(1 + tl.exp(x)))
