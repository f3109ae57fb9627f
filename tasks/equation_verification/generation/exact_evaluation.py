"""Values at single points with 50 digits, for what double precision leaves in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mpmath

from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable

DIGITS = 50
_ZERO = mpmath.mpf(10) ** -40
"""With 50 digits a sum that cancels below this, relative to its terms, is zero; so is the sine of a multiple of pi."""
_LARGEST = mpmath.mpf(10) ** 100

_EXACT_CONSTANTS: dict[str, Callable[[], Any]] = {
    **{f"Integer:{integer}": partial(mpmath.mpf, integer) for integer in (*range(11), -2, -3)},
    "Rational:2/5": lambda: mpmath.mpf(2) / 5,
    "Rational:-1/2": lambda: mpmath.mpf(-1) / 2,
    "Float:0.7": lambda: mpmath.mpf(7) / 10,
    "NegativeOne:-1": lambda: mpmath.mpf(-1),
    "Pi:pi": lambda: +mpmath.pi,
    "Half:1/2": lambda: mpmath.mpf(1) / 2,
}


class UndefinedValueError(ArithmeticError):
    """An expression that has no value at a point, or one beyond all reasonable size."""


def evaluate_exactly(table: ExpressionTable, expression: int, variables: Sequence[complex]) -> Any:
    """The value of ``expression`` where ``var_i`` is ``variables[i]``, to 50 digits, as an ``mpf`` or ``mpc``.

    Raises:
        UndefinedValueError: a division by zero or a number beyond 1e100 on the way.
    """
    with mpmath.workdps(DIGITS):
        points = [mpmath.mpf(v.real) if v.imag == 0 else mpmath.mpc(v.real, v.imag) for v in variables]
        known: dict[int, Any] = {}
        for node in table.postorder(expression):
            if node in known:
                continue
            label = table.label[node]
            operands = [known[child] for child in table.children[node]]
            if operands:
                value = _apply(label, operands)
            else:
                value = points[VARIABLES.index(label)] if label in VARIABLES else _EXACT_CONSTANTS[label]()
            known[node] = _plain(value)
        return known[expression]


def _plain(value: Any) -> Any:
    """``value`` as a real number if rounding alone keeps it from being one."""
    if not mpmath.isfinite(value) or abs(value) > _LARGEST:
        raise UndefinedValueError
    if isinstance(value, mpmath.mpc) and abs(value.imag) <= _ZERO * abs(value):
        return value.real
    return value


def _apply(label: str, operands: list[Any]) -> Any:
    first, last = operands[0], operands[-1]
    if label == "Add":
        total = first + last
        return total if abs(total) > _ZERO * max(abs(first), abs(last)) else mpmath.mpf(0)
    if label == "Mul":
        return first * last
    if label == "Pow":
        return _power(first, last)
    nothing = _ZERO * (1 + abs(first))
    sine, cosine = (
        value if abs(value) > nothing else mpmath.mpf(0) for value in (mpmath.sin(first), mpmath.cos(first))
    )
    numerator, denominator = {
        "sin": (sine, 1),
        "cos": (cosine, 1),
        "tan": (sine, cosine),
        "cot": (cosine, sine),
        "sec": (1, cosine),
        "csc": (1, sine),
    }[label]
    if denominator == 0:
        raise UndefinedValueError
    return numerator / denominator


def _power(base: Any, exponent: Any) -> Any:
    if exponent == 0:
        return mpmath.mpf(1)
    if base == 0:
        if isinstance(exponent, mpmath.mpc) or exponent < 0:
            raise UndefinedValueError
        return mpmath.mpf(0)
    if abs(exponent * mpmath.log(base)) > 1000:
        raise UndefinedValueError
    return mpmath.power(base, exponent)
