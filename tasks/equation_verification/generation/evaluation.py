"""Values of many expressions at real and complex points, with a bound on the rounding error of each.

Each distinct subexpression of a batch is evaluated once, at all points, together with all others of its height and
label. The error bounds show which values are doubtful: a denominator that is zero except for rounding (``csc(pi)``), a
cancellation, a branch cut. :func:`evaluate_exactly` settles those with 50 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.expressions import (
    TRIGONOMETRIC_FUNCTIONS,
    VARIABLES,
    ExpressionTable,
)
from treemem.trees.equation_labels import NUM_VARIABLES

_FRACTIONS = {
    **{f"Integer:{integer}": Fraction(integer) for integer in (*range(11), -2, -3)},
    "Rational:2/5": Fraction(2, 5),
    "Rational:-1/2": Fraction(-1, 2),
    "Float:0.7": Fraction(7, 10),
    "NegativeOne:-1": Fraction(-1),
    "Half:1/2": Fraction(1, 2),
}
CONSTANTS: dict[str, float] = {
    **{label: float(value) for label, value in _FRACTIONS.items()},
    "Pi:pi": np.pi,
    "Exp1:E": np.e,
}
_ROUNDED_CONSTANTS = ("Rational:2/5", "Float:0.7", "Pi:pi", "Exp1:E")

USABLE, DOUBTFUL, UNDEFINED = 0, 1, 2
"""Status of a value: known; hidden by rounding; not there (a pole, overflow)."""

_ROUNDING = 2.0**-51
_LARGEST, _SMALLEST = 1e100, 1e-100
_DOUBT = 1e3
"""A magnitude below this many error bounds may be zero."""


NUM_REAL = 24


def _draw_points(num_complex: int = 24, seed: int = 2018) -> NDArray[np.complex128]:
    generator = np.random.default_rng(seed)

    def draw(largest: float, count: int) -> NDArray[np.float64]:
        shape = (NUM_VARIABLES, count)
        return generator.uniform(0.2, largest, shape) * generator.choice([-1.0, 1.0], shape)

    real = draw(3.0, NUM_REAL) + 0j
    return np.concatenate([real, draw(2.5, num_complex) + 1j * draw(1.2, num_complex)], axis=1)


POINTS = _draw_points()
"""Where equations are tested, ``[variables, 48]``, away from zero: 24 real points, then 24 complex ones near the real
axis in all quadrants."""


class Values(NamedTuple):
    """Values of some expressions at all points; each field is ``[expressions, points]``.

    Attributes:
        value: meaningless where ``status`` is ``UNDEFINED``.
        error: bound on the absolute error of ``value``.
        status: ``USABLE``, ``DOUBTFUL`` or ``UNDEFINED``.
        on_cut: whether a root or fractional power of a negative number occurs within; principal values jump there.
    """

    value: NDArray[np.complex128]
    error: NDArray[np.float64]
    status: NDArray[np.int8]
    on_cut: NDArray[np.bool_]

    @classmethod
    def exactly(cls, value: NDArray[np.complex128]) -> Values:
        """Return values without errors."""
        shape = value.shape
        return cls(value, np.zeros(shape), np.zeros(shape, np.int8), np.zeros(shape, bool))

    def take(self, rows: NDArray[np.int64] | slice) -> Values:
        """Return the values in ``rows``."""
        return Values(self.value[rows], self.error[rows], self.status[rows], self.on_cut[rows])

    def put(self, rows: slice, values: Values) -> None:
        """Write ``values`` into ``rows``."""
        self.value[rows], self.error[rows] = values.value, values.error
        self.status[rows], self.on_cut[rows] = values.status, values.on_cut


def evaluate(
    table: ExpressionTable,
    expressions: Sequence[int],
    points: NDArray[np.complex128] = POINTS,
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
                result = _checked(_FUNCTIONS[label](*(values.take(column) for column in children.T)))
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
    if label in _ROUNDED_CONSTANTS:
        value.error[:] = _ROUNDING * CONSTANTS[label]
    return value


def _checked(result: Values) -> Values:
    """Return ``result`` with positive zeros, and with values out of range marked as undefined."""
    value = result.value + 0.0
    magnitude = np.abs(value)
    outside = ~np.isfinite(value) | (magnitude > _LARGEST) | ((magnitude < _SMALLEST) & (value != 0))
    doubtful = ~(result.error < 1e-3 * (1 + magnitude))
    found = np.where(outside, UNDEFINED, np.where(doubtful, DOUBTFUL, USABLE))
    status = np.where(result.status == USABLE, found, result.status)
    value[outside] = 1.0
    return Values(value, np.where(outside, 0.0, result.error), status.astype(np.int8), result.on_cut)


def _rounded(
    value: NDArray[np.complex128], error: NDArray[np.float64], exact: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return ``error`` plus the rounding of ``value``: 0 if ``exact`` operands give a short binary number."""
    scaled = value * 1024
    short = (
        exact & (np.abs(value) < 1e6) & (scaled.real == np.rint(scaled.real)) & (scaled.imag == np.rint(scaled.imag))
    )
    return np.where(short, 0.0, error + _ROUNDING * np.abs(value))


def _combined(left: Values, right: Values, value: NDArray[np.complex128], error: NDArray[np.float64]) -> Values:
    return Values(value, error, np.maximum(left.status, right.status), left.on_cut | right.on_cut)


def _add(left: Values, right: Values) -> Values:
    value = left.value + right.value
    error = left.error + right.error
    return _combined(left, right, value, _rounded(value, error, error == 0))


def _multiply(left: Values, right: Values) -> Values:
    value = left.value * right.value
    error = np.abs(left.value) * right.error + np.abs(right.value) * left.error + left.error * right.error
    return _combined(left, right, value, _rounded(value, error, (left.error == 0) & (right.error == 0)))


def meets_cut(base: Values, exponent: Values) -> NDArray[np.bool_]:
    """Return where ``base ^ exponent`` is a root or fractional power of a negative number."""
    is_negative = (base.value.real < 0) & (np.abs(base.value.imag) <= 16 * base.error)
    return is_negative & ~_is_integer(exponent)


def _is_integer(values: Values) -> NDArray[np.bool_]:
    return np.abs(values.value - np.rint(values.value.real)) <= 8 * values.error


def _power(base: Values, exponent: Values) -> Values:
    cut = meets_cut(base, exponent)
    a, b = np.where(cut, base.value.real, base.value), exponent.value
    magnitude = np.abs(a)
    exact_exponent = exponent.error == 0
    exact = (base.error == 0) & exact_exponent
    whole = _is_integer(exponent) & exact_exponent
    value = np.where(b == 0.5, np.sqrt(a), np.power(a, b))
    logarithm = np.log(a)
    error = np.abs(value) * (np.abs(b) * base.error / magnitude + np.abs(logarithm) * exponent.error)
    error = error + _ROUNDING * np.abs(value) * (1 + np.abs(b * logarithm))
    error = np.where(exact & (whole | (b == 0.5)), _rounded(value, error, exact), error)
    beside_cut = (a.real < 0) & (np.abs(a.imag) <= 1e-9 * magnitude) & ~cut & ~_is_integer(exponent)
    small = magnitude <= _DOUBT * base.error
    status = np.where(beside_cut | (small & (~whole | (b.real < 0))), DOUBTFUL, USABLE)
    error = np.where(small, (magnitude + base.error) ** np.maximum(b.real, 1.0), error)

    zero = (a == 0) & (base.error == 0)
    vanishes = (b.imag == 0) & (b.real > _DOUBT * exponent.error)
    unsure = (np.abs(b) <= _DOUBT * exponent.error) & ~exact_exponent
    status = np.where(zero, np.where(vanishes, USABLE, np.where(unsure, DOUBTFUL, UNDEFINED)), status)
    one = ((a == 1) & (base.error == 0)) | ((b == 0) & exact_exponent)
    status = np.where(one, USABLE, status)
    value = np.where(one, 1.0, np.where(zero, 0.0, value))
    error = np.where(one | zero, 0.0, error)
    result = _combined(base, exponent, value, error)
    return Values(value, error, np.maximum(result.status, status), result.on_cut | (cut & ~one))


def _sine(argument: Values) -> Values:
    return _of_argument(argument, np.sin(argument.value), np.cos(argument.value))


def _cosine(argument: Values) -> Values:
    return _of_argument(argument, np.cos(argument.value), np.sin(argument.value))


def _of_argument(argument: Values, value: NDArray[np.complex128], derivative: NDArray[np.complex128]) -> Values:
    error = argument.error * (np.abs(derivative) + argument.error) + _ROUNDING * np.abs(value)
    error = np.where((argument.error == 0) & (argument.value == 0), 0.0, error)
    return Values(value, error, argument.status, argument.on_cut)


def _quotient(numerator: Values, denominator: Values) -> Values:
    value = numerator.value / denominator.value
    magnitude = np.abs(denominator.value)
    error = (numerator.error + np.abs(value) * denominator.error) / magnitude + _ROUNDING * np.abs(value)
    error = np.where((numerator.value == 0) & (numerator.error == 0), 0.0, error)
    doubtful = magnitude <= _DOUBT * denominator.error
    undefined = (magnitude == 0) & (denominator.error == 0)
    status = np.where(undefined, UNDEFINED, np.where(doubtful, DOUBTFUL, USABLE))
    result = _combined(numerator, denominator, value, error)
    return Values(value, error, np.maximum(result.status, status), result.on_cut)


def _reciprocal(denominator: Values) -> Values:
    return _quotient(Values.exactly(np.ones(denominator.value.shape, np.complex128)), denominator)


def _reciprocal_argument(function: Callable[[Values], Values]) -> Callable[[Values], Values]:
    return lambda argument: function(_checked(_reciprocal(argument)))


def _differentiable(
    function: Callable[..., NDArray[np.complex128]], derivative: Callable[..., NDArray[np.complex128]]
) -> Callable[[Values], Values]:
    """Return an elementary function with the error of its argument carried over by its derivative."""

    def apply(argument: Values) -> Values:
        z, before = argument.value, argument.error
        value, slope = function(z), np.abs(derivative(z))
        error = 2 * before * slope + 4 * _ROUNDING * (np.abs(value) + slope * np.abs(z))
        error = np.where((before == 0) & (value == 0), 0.0, error)
        undefined = ~np.isfinite(value) & (before == 0)
        doubtful = ~np.isfinite(error) & ((before > 0) | ~np.isfinite(slope)) & ~undefined
        error = np.where(doubtful & (before == 0), 4 * _ROUNDING * np.abs(value), error)
        status = np.where(undefined, UNDEFINED, np.where(doubtful & (before > 0), DOUBTFUL, USABLE))
        return Values(value, error, np.maximum(argument.status, status).astype(np.int8), argument.on_cut)

    return apply


_exponential = _differentiable(np.exp, np.exp)
_logarithm = _differentiable(np.log, lambda z: 1 / z)
_arcsine = _differentiable(np.arcsin, lambda z: 1 / np.sqrt(1 - z * z))
_arccosine = _differentiable(np.arccos, lambda z: 1 / np.sqrt(1 - z * z))
_arctangent = _differentiable(np.arctan, lambda z: 1 / (1 + z * z))
_sinh = _differentiable(np.sinh, np.cosh)
_cosh = _differentiable(np.cosh, np.sinh)
_arsinh = _differentiable(np.arcsinh, lambda z: 1 / np.sqrt(1 + z * z))
_arcosh = _differentiable(np.arccosh, lambda z: 1 / np.sqrt(z * z - 1))
_artanh = _differentiable(np.arctanh, lambda z: 1 / (1 - z * z))


_FUNCTIONS: dict[str, Callable[..., Values]] = {
    "Add": _add,
    "Mul": _multiply,
    "Pow": _power,
    "sin": _sine,
    "cos": _cosine,
    "tan": lambda argument: _quotient(_sine(argument), _cosine(argument)),
    "cot": lambda argument: _quotient(_cosine(argument), _sine(argument)),
    "sec": lambda argument: _reciprocal(_cosine(argument)),
    "csc": lambda argument: _reciprocal(_sine(argument)),
    "asin": _arcsine,
    "acos": _arccosine,
    "atan": _arctangent,
    "acsc": _reciprocal_argument(_arcsine),
    "asec": _reciprocal_argument(_arccosine),
    "acot": _reciprocal_argument(_arctangent),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": lambda argument: _quotient(_sinh(argument), _cosh(argument)),
    "coth": lambda argument: _quotient(_cosh(argument), _sinh(argument)),
    "sech": lambda argument: _reciprocal(_cosh(argument)),
    "csch": lambda argument: _reciprocal(_sinh(argument)),
    "asinh": _arsinh,
    "acosh": _arcosh,
    "atanh": _artanh,
    "acsch": _reciprocal_argument(_arsinh),
    "asech": _reciprocal_argument(_arcosh),
    "acoth": _reciprocal_argument(_artanh),
    "exp": _exponential,
    "log": lambda value, base: _quotient(_logarithm(value), _logarithm(base)),
}


_DIGITS = 50


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
    if label not in _FRACTIONS:
        raise UndefinedValueError
    return mpmath.mpf(_FRACTIONS[label].numerator) / _FRACTIONS[label].denominator


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
    if not mpmath.isfinite(value) or abs(value) > _LARGEST:
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
