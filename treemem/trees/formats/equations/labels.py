"""The labels of equation trees: 25 unary and 4 binary functions and 34 leaves, spelled as in the published data."""

from __future__ import annotations

EQUALITY = "Equality"
"""The root of an equation."""

NUMBER = "Number"
"""A leaf that stands for its ``value``, in numeric equations."""

UNARY_FUNCTIONS: tuple[str, ...] = (
    *("sin", "cos", "csc", "sec", "tan", "cot"),
    *("asin", "acos", "acsc", "asec", "atan", "acot"),
    *("sinh", "cosh", "csch", "sech", "tanh", "coth"),
    *("asinh", "acosh", "acsch", "asech", "atanh", "acoth"),
    "exp",
)

BINARY_FUNCTIONS: tuple[str, ...] = ("Add", "Mul", "Pow", "log")
"""``log`` has the children value, base."""

FUNCTION_ARITIES: dict[str, int] = {
    EQUALITY: 2,
    **dict.fromkeys(BINARY_FUNCTIONS, 2),
    **dict.fromkeys(UNARY_FUNCTIONS, 1),
}

NUM_VARIABLES = 10
"""How many variables the leaf table has, ``var_0`` to ``var_9``."""

LEAF_LABELS: tuple[str, ...] = (
    *(f"Symbol:var_{index}" for index in range(NUM_VARIABLES)),
    *(f"Integer:{integer}" for integer in (*range(11), -2, -3)),
    *("Rational:2/5", "Rational:-1/2", "Rational:0", "Float:0.7"),
    *("NegativeOne:-1", "NaN:nan", "Infinity:oo", "Exp1:E", "Pi:pi", "One:1", "Half:1/2"),
)
"""All leaves, in the order of the published embedding table."""

UNIFIED_LABELS: dict[str, str] = {"One:1": "Integer:1", "Rational:0": "Integer:0"}
"""Leaves of the published data that say the same as another leaf and are read as that one."""


def variable_label(index: int) -> str:
    """The leaf label of variable ``index``; from 10 on it lies outside the leaf table."""
    return f"Symbol:var_{index}"
