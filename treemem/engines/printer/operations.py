"""The operations of a printed step: what torch computes, how C++ says it, and which operations of aten they are."""

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
        aten: the operations of aten that it is; its own name if there is none.
        cheap: whether to compute it again rather than to keep its value from one loop to the next.
        inverts: whether a product's place may hold its value, from which alone its derivative follows.
    """

    torch: Callable[..., Tensor]
    cpp: str
    aten: tuple[str, ...] = ()
    cheap: bool = False
    inverts: bool = False


OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, "({} + {})", cheap=True),
    "sub": Operation(torch.sub, "({} - {})", cheap=True),
    "mul": Operation(torch.mul, "({} * {})", cheap=True),
    "div": Operation(torch.div, "({} / {})"),
    "neg": Operation(torch.neg, "(-{})", cheap=True),
    "max": Operation(torch.maximum, "larger({}, {})", ("maximum",), cheap=True),
    "min": Operation(torch.minimum, "smaller({}, {})", ("minimum",), cheap=True),
    "sigmoid": Operation(torch.sigmoid, "sigmoid({})", inverts=True),
    "tanh": Operation(torch.tanh, "hyperbolic_tangent({})", inverts=True),
    "exp": Operation(torch.exp, "exponential({})", inverts=True),
    "expm1": Operation(torch.expm1, "exponential_minus_one({})"),
    "sqrt": Operation(torch.sqrt, "std::sqrt({})"),
    "log": Operation(torch.log, "std::log({})"),
    "log1p": Operation(torch.log1p, "std::log1p({})"),
    "sin": Operation(torch.sin, "std::sin({})"),
    "cos": Operation(torch.cos, "std::cos({})"),
    "erf": Operation(torch.erf, "error_function({})"),
    "abs": Operation(torch.abs, "std::fabs({})"),
    "sign": Operation(torch.sgn, "sign({})", ("sign", "sgn")),
    "power": Operation(torch.pow, "std::pow({}, {})", ("pow",)),
    "where": Operation(lambda c, a, b: torch.where(c.bool(), a, b), "({} ? {} : {})"),
    "gt": Operation(torch.gt, "T({} > {})"),
    "lt": Operation(torch.lt, "T({} < {})"),
    "ge": Operation(torch.ge, "T({} >= {})"),
    "le": Operation(torch.le, "T({} <= {})"),
    "eq": Operation(torch.eq, "T({} == {})"),
    "ne": Operation(torch.ne, "T({} != {})"),
    "and": Operation(torch.logical_and, "T({} && {})", ("bitwise_and", "logical_and")),
    "or": Operation(torch.logical_or, "T({} || {})", ("bitwise_or", "logical_or")),
    "not": Operation(torch.logical_not, "T(!{})", ("bitwise_not", "logical_not")),
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
