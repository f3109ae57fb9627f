"""Values of many expressions at real and complex points, with a bound on the rounding error of each.

Each distinct subexpression of a batch is evaluated once, at all points, together with all others of its height and
label. The error bounds show which values are doubtful: a denominator that is zero except for rounding (``csc(pi)``), a
cancellation, a branch cut. :func:`evaluate_exactly` settles those with 50 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.expressions import (
    TRIGONOMETRIC_FUNCTIONS,
    VARIABLES,
    ExpressionTable,
)
from treemem.tasks.equation_verification.generation.functions import (
    CONSTANTS,
    FRACTIONS,
    FUNCTIONS,
    LARGEST,
    ROUNDED_CONSTANTS,
    ROUNDING,
    UNDEFINED,
    USABLE,
    Values,
)

_DIGITS = 50
AGREEMENT = mpmath.mpf(10) ** -40
"""The sides are equal if they differ by less, relative to the larger one, or to 1."""


def evaluate(
    table: ExpressionTable,
    expressions: Sequence[int],
    points: NDArray[np.complex128],
    num_real: int = 0,
) -> Values:
    """Return the values of ``expressions`` at ``points``, a row for each expression.

    Expressions are built of constants, variables, and the functions of the vocabulary. Values are principal values;
    infinity and nan are undefined. ``0^0`` is 1; ``0^z`` is undefined if ``z`` is negative or not real.

    Args:
        table: holds the expressions.
        expressions: what to evaluate.
        points: values of the variables, ``[variables, points]``.
        num_real: at this number of points, the first ones, functions are real functions: a root or a logarithm of a
            negative number is undefined.
    """
    by_kind: dict[tuple[int, str], list[int]] = {}
    for expression in table.subexpressions(expressions):
        by_kind.setdefault((table.height[expression], table.label[expression]), []).append(expression)
    shape = (sum(map(len, by_kind.values())), points.shape[1])
    values = Values.exactly(np.empty(shape, np.complex128))
    row_of: dict[int, int] = {}
    with np.errstate(all="ignore"):
        for height, label in sorted(by_kind):
            group = by_kind[height, label]
            rows = slice(len(row_of), len(row_of) + len(group))
            if height == 0:
                result = _leaf(label, points)
            else:
                children = np.array([[row_of[child] for child in table.children[node]] for node in group])
                result = FUNCTIONS[label].bounded(*(values.take(column) for column in children.T)).in_range()
                if num_real:
                    _require_real(result, num_real)
            values.put(rows, result)
            row_of.update(zip(group, range(rows.start, rows.stop), strict=True))
    return values.take(np.array([row_of[expression] for expression in expressions], dtype=np.int64))


def _require_real(values: Values, count: int) -> None:
    """Mark values that are not real at the first ``count`` points as undefined; changes ``values``."""
    value, error, status = (array[:, :count] for array in (values.value, values.error, values.status))
    imaginary = np.abs(value.imag)
    rounding = imaginary <= 16 * error + 1e-13 * np.abs(value.real)
    status[~rounding & (status == USABLE)] = UNDEFINED
    value.imag[...] = 0.0


def _leaf(label: str, points: NDArray[np.complex128]) -> Values:
    if label in VARIABLES:
        return Values.exactly(points[VARIABLES.index(label)][None])
    value = Values.exactly(np.full((1, points.shape[1]), CONSTANTS.get(label, 1.0), np.complex128))
    if label not in CONSTANTS:  # infinity and nan
        value.status[:] = UNDEFINED
    if label in ROUNDED_CONSTANTS:
        value.error[:] = ROUNDING * CONSTANTS[label]
    return value


class UndefinedValueError(ArithmeticError):
    """An expression has no value at a point, or one beyond 1e100."""


def evaluate_exactly(
    table: ExpressionTable,
    expression: int,
    variables: Sequence[complex],
    *,
    real: bool = False,
    digits: int = _DIGITS,
) -> Any:
    """Return the value of ``expression`` where ``var_i`` is ``variables[i]``, with ``digits``, as ``mpf`` or ``mpc``.

    Raises:
        UndefinedValueError: a division by zero, or a number beyond 1e100 within; with ``real``, also a number that is
            not real.
    """
    with mpmath.workdps(digits):
        known: dict[int, Any] = {}
        for node in table.postorder(expression):
            if node not in known:
                operands = [known[child] for child in table.children[node]]
                label = table.label[node]
                value = _exact_function(label, operands) if operands else _exact_leaf(label, variables)
                known[node] = _checked_exactly(value)
                if real and isinstance(known[node], mpmath.mpc):
                    raise UndefinedValueError
        return known[expression]


def _exact_leaf(label: str, variables: Sequence[complex]) -> Any:
    if label in VARIABLES:
        point = variables[VARIABLES.index(label)]
        return mpmath.mpf(point.real) if point.imag == 0 else mpmath.mpc(point)
    if label == "Pi:pi":
        return +mpmath.pi
    if label == "Exp1:E":
        return +mpmath.e
    if label not in FRACTIONS:
        raise UndefinedValueError
    return mpmath.mpf(FRACTIONS[label].numerator) / FRACTIONS[label].denominator


def exact_difference(
    table: ExpressionTable, equation: int, point: Sequence[float], digits: int = _DIGITS
) -> tuple[Any, Any]:
    """Return the difference of the sides at a real point, and what it is compared with: the larger side, or 1.

    Raises:
        UndefinedValueError: a side has no real value there.
    """
    variables = [complex(value) for value in point]
    left, right = (
        evaluate_exactly(table, side, variables, real=True, digits=digits) for side in table.children[equation]
    )
    with mpmath.workdps(digits):
        return left - right, max(abs(left), abs(right), 1)


def sides_agree(table: ExpressionTable, equation: int, point: Sequence[float]) -> bool | None:
    """Return whether the sides agree to 40 digits at a real point; None if one has no value there."""
    try:
        difference, size = exact_difference(table, equation, point)
    except UndefinedValueError:
        return None
    return bool(abs(difference) <= AGREEMENT * size)


@lru_cache
def _zero(digits: int) -> Any:
    """A sum smaller than this, relative to its terms, is zero, and so is such a sine or cosine: 1e-40 of 50 digits."""
    return mpmath.mpf(10) ** (10 - digits)


def _checked_exactly(value: Any) -> Any:
    """Return ``value``, as a real number if its imaginary part is rounding only."""
    if isinstance(value, mpmath.mpf) and _is_moderate(value._mpf_):
        return value
    if isinstance(value, mpmath.mpc) and all(map(_is_moderate, value._mpc_)):
        real, imaginary = (exponent + bits for _, _, exponent, bits in value._mpc_)
        if imaginary > real - 40:  # much more than rounding; this saves a square root
            return value
    if not mpmath.isfinite(value) or abs(value) > LARGEST:
        raise UndefinedValueError
    if isinstance(value, mpmath.mpc) and abs(value.imag) <= _zero(mpmath.mp.dps) * abs(value):
        return value.real
    return value


def _is_moderate(number: tuple[int, int, int, int]) -> bool:
    """Return whether a number of mpmath is finite, not zero, and at most ``2^331``, which is below 1e100."""
    _, mantissa, exponent, bits = number
    return mantissa != 0 and exponent + bits <= 331


def _exact_function(label: str, operands: list[Any]) -> Any:
    first, last = operands[0], operands[-1]
    if label == "Add":
        return _zero_below(first + last, max(abs(first), abs(last)))
    if label == "Mul":
        return first * last
    if label == "Pow":
        return _exact_power(first, last)
    if label not in TRIGONOMETRIC_FUNCTIONS:
        return _exact_other_function(label, first, last)
    sine, cosine = (_zero_below(function(first), 1 + abs(first)) for function in (mpmath.sin, mpmath.cos))
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


def _exact_other_function(label: str, first: Any, last: Any) -> Any:
    """Return a logarithm, or an exponential, hyperbolic or inverse function."""
    if label in ("exp", "sinh", "cosh", "tanh", "coth", "sech", "csch") and abs(mpmath.re(first)) > 1000:
        raise UndefinedValueError
    try:
        if label == "log":
            value, scale = mpmath.log(first) / mpmath.log(last), 1
        else:
            value, scale = getattr(mpmath, label)(first), 1 + abs(first)
    except (ZeroDivisionError, ValueError) as error:
        raise UndefinedValueError from error
    return _zero_below(value, scale)


def _zero_below(value: Any, scale: Any) -> Any:
    return value if abs(value) > _zero(mpmath.mp.dps) * scale else mpmath.mpf(0)


def _exact_power(base: Any, exponent: Any) -> Any:
    if exponent == 0:
        return mpmath.mpf(1)
    if base == 0:
        if isinstance(exponent, mpmath.mpc) or exponent < 0:
            raise UndefinedValueError
        return mpmath.mpf(0)
    if abs(exponent * mpmath.log(base)) > 1000:
        raise UndefinedValueError
    return mpmath.power(base, exponent)
