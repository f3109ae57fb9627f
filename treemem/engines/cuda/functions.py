"""Functions that Triton does not have."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def hyperbolic_tangent(x):
    """``tanh(x)``, whose relative error is that of its type near 0, too: there it is a continued fraction."""
    is_small, square = tl.abs(x) < 0.5, x * x
    above = x * (135135 + square * (17325 + square * (378 + square)))
    below = 135135 + square * (62370 + square * (3150 + square * 28))
    quotient = tl.where(is_small, above, -2.0) / tl.where(is_small, below, tl.exp(2 * x) + 1)
    return tl.where(is_small, quotient, 1 + quotient)


@triton.jit
def sign(x):
    """1, -1, or 0; what is not a number stays so."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0 * x))


@triton.jit
def softplus(x):
    """``log(1 + exp(x))``, with torch's threshold."""
    return tl.where(x > 20, x, tl.log(1 + tl.exp(x)))


@triton.jit
def running_sums(x, AXIS: tl.constexpr, REVERSE: tl.constexpr = False):
    """``tl.cumsum``. A block of one row or column is summed as a vector: Triton 3.6 compiles some such sums only so."""
    if x.shape[1 - AXIS] == 1:
        sums = tl.cumsum(tl.reshape(x, [x.shape[0] * x.shape[1]]), 0, reverse=REVERSE)
        return tl.reshape(sums, [x.shape[0], x.shape[1]])
    return tl.cumsum(x, AXIS, reverse=REVERSE)
