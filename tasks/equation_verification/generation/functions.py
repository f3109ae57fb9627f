"""The functions and constants of the vocabulary: as real functions, and with a bound on the error of each value."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_EXACT: dict[str, Fraction | float] = {
    **{f"Integer:{integer}": Fraction(integer) for integer in (*range(11), -2, -3)},
    "Rational:2/5": Fraction(2, 5),
    "Rational:-1/2": Fraction(-1, 2),
    "Float:0.7": Fraction(7, 10),
    "NegativeOne:-1": Fraction(-1),
    "Pi:pi": np.pi,
    "Exp1:E": np.e,
    "Half:1/2": Fraction(1, 2),
}
CONSTANTS: dict[str, float] = {label: float(value) for label, value in _EXACT.items()}
"""Their order is that in which random labels are drawn."""

FRACTIONS = {label: value for label, value in _EXACT.items() if isinstance(value, Fraction)}
ROUNDING = 2.0**-51
ROUNDED_CONSTANTS = ("Rational:2/5", "Float:0.7", "Pi:pi", "Exp1:E")

USABLE, DOUBTFUL, UNDEFINED = 0, 1, 2
"""Status of a value: known; hidden by rounding; not there (a pole, overflow)."""

LARGEST, _SMALLEST = 1e100, 1e-100
_DOUBT = 1e3
"""A magnitude below this many error bounds may be zero."""


class Values(NamedTuple):
    """Values of some expressions at all points; each field is ``[expressions, points]``.

    Attributes:
        value: meaningless where ``status`` is ``UNDEFINED``.
        error: bound on the absolute error of ``value``.
        status: ``USABLE``, ``DOUBTFUL`` or ``UNDEFINED``.
    """

    value: NDArray[np.complex128]
    error: NDArray[np.float64]
    status: NDArray[np.int8]

    @classmethod
    def exactly(cls, value: NDArray[np.complex128]) -> Values:
        """Return values without errors."""
        return cls(value, np.zeros(value.shape), np.zeros(value.shape, np.int8))

    def take(self, rows: NDArray[np.int64] | slice) -> Values:
        """Return the values in ``rows``."""
        return Values(self.value[rows], self.error[rows], self.status[rows])

    def put(self, rows: slice, values: Values) -> None:
        """Write ``values`` into ``rows``."""
        self.value[rows], self.error[rows], self.status[rows] = values

    def in_range(self) -> Values:
        """Return these values with positive zeros; those out of range are undefined."""
        value = self.value + 0.0
        magnitude = np.abs(value)
        outside = ~np.isfinite(value) | (magnitude > LARGEST) | ((magnitude < _SMALLEST) & (value != 0))
        doubtful = ~(self.error < 1e-3 * (1 + magnitude))
        range_status = np.where(outside, UNDEFINED, np.where(doubtful, DOUBTFUL, USABLE))
        status = np.where(self.status == USABLE, range_status, self.status)
        value[outside] = 1.0
        return Values(value, np.where(outside, 0.0, self.error), status.astype(np.int8))


class Function(NamedTuple):
    """A function of one or two arguments.

    Attributes:
        real: of numbers or arrays. What is not real or not there is NaN or infinite, and numpy warns of it.
        bounded: of :class:`Values`, principal values of complex arguments.
        has_branches: whether its principal values jump somewhere on the complex plane.
    """

    real: Callable[..., Any]
    bounded: Callable[..., Values]
    has_branches: bool = False


def _rounded(
    value: NDArray[np.complex128], error: NDArray[np.float64], exact: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return ``error`` plus the rounding of ``value``: 0 if ``exact`` operands give a short binary number."""
    scaled = value * 1024
    short = (
        exact & (np.abs(value) < 1e6) & (scaled.real == np.rint(scaled.real)) & (scaled.imag == np.rint(scaled.imag))
    )
    return np.where(short, 0.0, error + ROUNDING * np.abs(value))


def _add(left: Values, right: Values) -> Values:
    value, error = left.value + right.value, left.error + right.error
    return Values(value, _rounded(value, error, error == 0), np.maximum(left.status, right.status))


def _multiply(left: Values, right: Values) -> Values:
    value = left.value * right.value
    error = np.abs(left.value) * right.error + np.abs(right.value) * left.error + left.error * right.error
    exact = (left.error == 0) & (right.error == 0)
    return Values(value, _rounded(value, error, exact), np.maximum(left.status, right.status))


def _is_integer(values: Values) -> NDArray[np.bool_]:
    return np.abs(values.value - np.rint(values.value.real)) <= 8 * values.error


def _power(base: Values, exponent: Values) -> Values:
    """Return powers. ``0^0`` is 1; ``0^z`` is undefined if ``z`` is negative or not real."""
    negative = (base.value.real < 0) & (np.abs(base.value.imag) <= 16 * base.error)
    cut = negative & ~_is_integer(exponent)
    a, b = np.where(cut, base.value.real, base.value), exponent.value
    magnitude = np.abs(a)
    exact_exponent = exponent.error == 0
    exact = (base.error == 0) & exact_exponent
    whole = _is_integer(exponent) & exact_exponent
    value = np.where(b == 0.5, np.sqrt(a), np.power(a, b))
    logarithm = np.log(a)
    error = np.abs(value) * (np.abs(b) * base.error / magnitude + np.abs(logarithm) * exponent.error)
    error = error + ROUNDING * np.abs(value) * (1 + np.abs(b * logarithm))
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
    return Values(value, error, np.maximum(np.maximum(base.status, exponent.status), status))


def _quotient(numerator: Values, denominator: Values) -> Values:
    value = numerator.value / denominator.value
    magnitude = np.abs(denominator.value)
    error = (numerator.error + np.abs(value) * denominator.error) / magnitude + ROUNDING * np.abs(value)
    error = np.where((numerator.value == 0) & (numerator.error == 0), 0.0, error)
    doubtful = magnitude <= _DOUBT * denominator.error
    undefined = (magnitude == 0) & (denominator.error == 0)
    status = np.where(undefined, UNDEFINED, np.where(doubtful, DOUBTFUL, USABLE))
    return Values(value, error, np.maximum(np.maximum(numerator.status, denominator.status), status))


def _inverted(denominator: Values) -> Values:
    return _quotient(Values.exactly(np.ones(denominator.value.shape, np.complex128)), denominator)


def _wave(value_of: np.ufunc, slope_of: np.ufunc) -> Function:
    """Return sine or cosine."""

    def bounded(argument: Values) -> Values:
        value, slope = value_of(argument.value), np.abs(slope_of(argument.value))
        error = argument.error * (slope + argument.error) + ROUNDING * np.abs(value)
        error = np.where((argument.error == 0) & (argument.value == 0), 0.0, error)
        return Values(value, error, argument.status)

    return Function(value_of, bounded)


def _elementary(value_of: np.ufunc, slope_of: Callable[..., Any], has_branches: bool = False) -> Function:
    """Return a function with the error of its argument carried over by its derivative."""

    def bounded(argument: Values) -> Values:
        z, before = argument.value, argument.error
        value, slope = value_of(z), np.abs(slope_of(z))
        error = 2 * before * slope + 4 * ROUNDING * (np.abs(value) + slope * np.abs(z))
        error = np.where((before == 0) & (value == 0), 0.0, error)
        undefined = ~np.isfinite(value) & (before == 0)
        doubtful = ~np.isfinite(error) & ((before > 0) | ~np.isfinite(slope)) & ~undefined
        error = np.where(doubtful & (before == 0), 4 * ROUNDING * np.abs(value), error)
        status = np.where(undefined, UNDEFINED, np.where(doubtful & (before > 0), DOUBTFUL, USABLE))
        return Values(value, error, np.maximum(argument.status, status).astype(np.int8))

    return Function(value_of, bounded, has_branches)


def _ratio(real: Callable[..., Any], over: Function, under: Function) -> Function:
    return Function(real, lambda argument: _quotient(over.bounded(argument), under.bounded(argument)))


def _one_over(function: Function) -> Function:
    return Function(lambda x: 1 / function.real(x), lambda argument: _inverted(function.bounded(argument)))


def _at_reciprocal(function: Function) -> Function:
    return Function(
        lambda x: function.real(1 / x), lambda argument: function.bounded(_inverted(argument).in_range()), True
    )


_SIN, _COS = _wave(np.sin, np.cos), _wave(np.cos, np.sin)
_SINH, _COSH = _elementary(np.sinh, np.cosh), _elementary(np.cosh, np.sinh)
_LOG = _elementary(np.log, lambda z: 1 / z)
_INVERSE = {
    "asin": _elementary(np.arcsin, lambda z: 1 / np.sqrt(1 - z * z), has_branches=True),
    "acos": _elementary(np.arccos, lambda z: 1 / np.sqrt(1 - z * z), has_branches=True),
    "atan": _elementary(np.arctan, lambda z: 1 / (1 + z * z), has_branches=True),
    "asinh": _elementary(np.arcsinh, lambda z: 1 / np.sqrt(1 + z * z), has_branches=True),
    "acosh": _elementary(np.arccosh, lambda z: 1 / np.sqrt(z * z - 1), has_branches=True),
    "atanh": _elementary(np.arctanh, lambda z: 1 / (1 - z * z), has_branches=True),
}

FUNCTIONS: dict[str, Function] = {
    "Add": Function(np.add, _add),
    "Mul": Function(np.multiply, _multiply),
    "Pow": Function(np.power, _power),  # has branches unless the exponent is an integer
    "log": Function(
        lambda value, base: np.log(value) / np.log(base),
        lambda value, base: _quotient(_LOG.bounded(value), _LOG.bounded(base)),
        has_branches=True,
    ),
    "exp": _elementary(np.exp, np.exp),
    "sin": _SIN,
    "cos": _COS,
    "tan": _ratio(np.tan, _SIN, _COS),
    "cot": _ratio(lambda x: 1 / np.tan(x), _COS, _SIN),
    "sec": _one_over(_COS),
    "csc": _one_over(_SIN),
    "sinh": _SINH,
    "cosh": _COSH,
    "tanh": _ratio(np.tanh, _SINH, _COSH),
    "coth": _ratio(lambda x: 1 / np.tanh(x), _COSH, _SINH),
    "sech": _one_over(_COSH),
    "csch": _one_over(_SINH),
    **_INVERSE,
    "acsc": _at_reciprocal(_INVERSE["asin"]),
    "asec": _at_reciprocal(_INVERSE["acos"]),
    "acot": _at_reciprocal(_INVERSE["atan"]),
    "acsch": _at_reciprocal(_INVERSE["asinh"]),
    "asech": _at_reciprocal(_INVERSE["acosh"]),
    "acoth": _at_reciprocal(_INVERSE["atanh"]),
}
"""All functions of the vocabulary by label."""
