"""Values of many expressions at real and complex points, with a bound on the rounding error of each.

Every distinct subexpression of a batch is evaluated once, at all points, together with all others of its height and
label. A bound on the absolute error runs along, so that a denominator that is zero but for rounding (``csc(pi)``), a
cancellation or a branch cut is seen as a doubt and not taken at face value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.trees.equation_labels import NUM_VARIABLES

CONSTANTS: dict[str, float] = {
    **{f"Integer:{integer}": float(integer) for integer in (*range(11), -2, -3)},
    "Rational:2/5": 0.4,
    "Rational:-1/2": -0.5,
    "Float:0.7": 0.7,
    "NegativeOne:-1": -1.0,
    "Pi:pi": float(np.pi),
    "Half:1/2": 0.5,
}
_ROUNDED_CONSTANTS = ("Rational:2/5", "Float:0.7", "Pi:pi")

USABLE, DOUBTFUL, UNDEFINED = 0, 1, 2
"""What is known of a value: it stands; rounding hides whether there is one; there is none (a pole, overflow)."""

_ROUNDING = 2.0**-51
_LARGEST, _SMALLEST = 1e100, 1e-100
_DOUBT = 1e3
"""A magnitude below so many error bounds is not told from zero."""


@dataclass(frozen=True)
class Points:
    """Where equations are tested.

    Attributes:
        values: ``[variables, points]`` complex128, real points first.
        num_real: how many of the points are real.
    """

    values: NDArray[np.complex128]
    num_real: int


def draw_points(num_real: int = 24, num_complex: int = 24, seed: int = 2018) -> Points:
    """Points away from zero: real ones of both signs to 3, complex ones of all quadrants, nearer to the real axis."""
    generator = np.random.default_rng(seed)

    def draw(largest: float, count: int) -> NDArray[np.float64]:
        shape = (NUM_VARIABLES, count)
        return generator.uniform(0.2, largest, shape) * generator.choice([-1.0, 1.0], shape)

    real = draw(3.0, num_real) + 0j
    return Points(np.concatenate([real, draw(2.5, num_complex) + 1j * draw(1.2, num_complex)], axis=1), num_real)


@dataclass(frozen=True)
class Values:
    """Values of some expressions at all points; each field is ``[expressions, points]``.

    Attributes:
        value: without meaning where there is none.
        error: bound on the absolute error of ``value``.
        status: ``USABLE``, ``DOUBTFUL`` or ``UNDEFINED``.
        on_cut: whether a root or broken power within was taken of a negative number, where principal values jump.
    """

    value: NDArray[np.complex128]
    error: NDArray[np.float64]
    status: NDArray[np.int8]
    on_cut: NDArray[np.bool_]

    @classmethod
    def empty(cls, num_expressions: int, num_points: int) -> Values:
        """Room for so many values."""
        shape = (num_expressions, num_points)
        return cls(np.empty(shape, np.complex128), np.empty(shape), np.empty(shape, np.int8), np.empty(shape, bool))

    @classmethod
    def exactly(cls, value: NDArray[np.complex128]) -> Values:
        """Values without errors or doubts."""
        shape = value.shape
        return cls(value, np.zeros(shape), np.zeros(shape, np.int8), np.zeros(shape, bool))

    def take(self, rows: NDArray[np.int64] | slice) -> Values:
        """The values of the expressions in ``rows``."""
        return Values(self.value[rows], self.error[rows], self.status[rows], self.on_cut[rows])

    def put(self, rows: slice, values: Values) -> None:
        """Fill ``rows``."""
        self.value[rows] = values.value
        self.error[rows] = values.error
        self.status[rows] = values.status
        self.on_cut[rows] = values.on_cut


def evaluate(table: ExpressionTable, expressions: Sequence[int], points: Points) -> Values:
    """The values of ``expressions`` at ``points``, one row an expression.

    The expressions are built of the constants above, variables, the six trigonometric functions, ``Add``, ``Mul`` and
    ``Pow``. Principal values; ``0^0`` is 1; ``0^z`` is undefined where ``z`` is negative or not real.
    """
    by_kind: dict[tuple[int, str], list[int]] = {}
    for expression in _with_subexpressions(table, expressions):
        by_kind.setdefault((table.height[expression], table.label[expression]), []).append(expression)
    values = Values.empty(sum(map(len, by_kind.values())), points.values.shape[1])
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
            values.put(rows, result)
            row_of.update(zip(group, range(rows.start, rows.stop), strict=True))
    return values.take(np.array([row_of[expression] for expression in expressions], dtype=np.int64))


def _with_subexpressions(table: ExpressionTable, expressions: Sequence[int]) -> list[int]:
    found, stack = set(expressions), list(set(expressions))
    while stack:
        for child in table.children[stack.pop()]:
            if child not in found:
                found.add(child)
                stack.append(child)
    return sorted(found)


def _leaf(label: str, points: Points) -> Values:
    if label in VARIABLES:
        return Values.exactly(points.values[VARIABLES.index(label)][None])
    value = Values.exactly(np.full((1, points.values.shape[1]), CONSTANTS[label], np.complex128))
    if label in _ROUNDED_CONSTANTS:
        value.error[:] = _ROUNDING * CONSTANTS[label]
    return value


def _checked(result: Values) -> Values:
    """``result`` with zeros made positive and what left the range of numbers marked as undefined."""
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
    """``error`` plus the rounding of ``value``; none where ``exact`` operands gave a short binary number."""
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
    """Where ``base ^ exponent`` is a root or broken power of a negative number."""
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
}
