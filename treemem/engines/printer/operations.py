"""The operations of a printed step: what torch computes, how C++ and Triton say it, and what aten calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """A pointwise operation.

    Attributes:
        torch: computes it, for the self-check and for constants.
        cpp: its expression in C++.
        triton: its expression in Triton, whose truth values are numbers too; None if there is none.
        aten: the operations of aten that it is; its own name if there is none.
        cheap: whether to compute it again rather than to keep its value from one loop to the next.
        inverts: whether a product's place may hold its value, from which alone its derivative follows.
    """

    torch: Callable[..., Tensor]
    cpp: str
    triton: str | None
    aten: tuple[str, ...] = ()
    cheap: bool = False
    inverts: bool = False


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, "({} + {})", "({} + {})", cheap=True),
    "sub": Operation(torch.sub, "({} - {})", "({} - {})", cheap=True),
    "mul": Operation(torch.mul, "({} * {})", "({} * {})", cheap=True),
    "div": Operation(torch.div, "({} / {})", "({} / {})"),
    "neg": Operation(torch.neg, "(-{})", "(-{})", cheap=True),
    "max": Operation(
        torch.maximum, "larger({}, {})", "tl.maximum({}, {}, tl.PropagateNan.ALL)", ("maximum",), cheap=True
    ),
    "min": Operation(
        torch.minimum, "smaller({}, {})", "tl.minimum({}, {}, tl.PropagateNan.ALL)", ("minimum",), cheap=True
    ),
    "sigmoid": Operation(torch.sigmoid, "sigmoid({})", "tl.sigmoid({})", inverts=True),
    "tanh": Operation(torch.tanh, "hyperbolic_tangent({})", "hyperbolic_tangent({})", inverts=True),
    "exp": Operation(torch.exp, "exponential({})", "tl.exp({})", inverts=True),
    "expm1": Operation(torch.expm1, "exponential_minus_one({})", "(tl.exp({}) - 1)"),
    "sqrt": Operation(torch.sqrt, "std::sqrt({})", "tl.sqrt({})"),
    "log": Operation(torch.log, "std::log({})", "tl.log({})"),
    "log1p": Operation(torch.log1p, "std::log1p({})", "tl.log(1 + {})"),
    "sin": Operation(torch.sin, "std::sin({})", "tl.sin({})"),
    "cos": Operation(torch.cos, "std::cos({})", "tl.cos({})"),
    "erf": Operation(torch.erf, "error_function({})", "tl.erf({})"),
    "abs": Operation(torch.abs, "std::fabs({})", "tl.abs({})"),
    "sign": Operation(torch.sgn, "sign({})", "sign({})", ("sign", "sgn")),
    "power": Operation(torch.pow, "std::pow({}, {})", None, ("pow",)),
    "where": Operation(lambda c, a, b: torch.where(c.bool(), a, b), "({} ? {} : {})", "tl.where({} != 0, {}, {})"),
    "gt": Operation(torch.gt, "T({} > {})", "tl.where({} > {}, 1.0, 0.0)"),
    "lt": Operation(torch.lt, "T({} < {})", "tl.where({} < {}, 1.0, 0.0)"),
    "ge": Operation(torch.ge, "T({} >= {})", "tl.where({} >= {}, 1.0, 0.0)"),
    "le": Operation(torch.le, "T({} <= {})", "tl.where({} <= {}, 1.0, 0.0)"),
    "eq": Operation(torch.eq, "T({} == {})", "tl.where({} == {}, 1.0, 0.0)"),
    "ne": Operation(torch.ne, "T({} != {})", "tl.where({} != {}, 1.0, 0.0)"),
    "and": Operation(
        torch.logical_and, "T({} && {})", "tl.where(({} != 0) & ({} != 0), 1.0, 0.0)", ("bitwise_and", "logical_and")
    ),
    "or": Operation(
        torch.logical_or, "T({} || {})", "tl.where(({} != 0) | ({} != 0), 1.0, 0.0)", ("bitwise_or", "logical_or")
    ),
    "not": Operation(torch.logical_not, "T(!{})", "tl.where({} == 0, 1.0, 0.0)", ("bitwise_not", "logical_not")),
}

OF_ATEN = {aten: name for name, operation in OPERATIONS.items() for aten in operation.aten or (name,)}

ACROSS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(1, keepdim=True),
    "largest": lambda rows: rows.amax(1, keepdim=True),
    "running sum": lambda rows: rows.cumsum(1),
    "running sum backwards": lambda rows: rows.flip(1).cumsum(1).flip(1),
}
"""Operations over the positions of a vector. The first two make a number."""

REDUCTIONS = ("sum", "largest")
