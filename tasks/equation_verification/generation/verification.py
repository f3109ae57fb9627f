"""Test numerically whether equations are true, false or neither.

Functions are real functions at real points, as in textbooks, and have principal values at complex points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation import functions
from treemem.tasks.equation_verification.generation.evaluation import (
    UndefinedValueError,
    evaluate,
    evaluate_exactly,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.functions import CONSTANTS, FUNCTIONS, Values
from treemem.trees.formats.equations.labels import NUM_VARIABLES

FALSE, TRUE, UNDECIDED = 0, 1, -1

LEAST_USABLE = 8
"""The smallest number of usable real points, and of usable complex ones."""

LEAST_DIFFERENT = 0.75
"""The sides of a false equation differ at this share of the usable real points, and of the complex ones, or more."""

UNUSABLE, EQUAL, BETWEEN, DIFFERENT, DOUBTFUL = range(5)
"""How the sides compare at a point. Sides that differ by less than 0.1 % are ``BETWEEN``."""

_EQUAL_BELOW, _DIFFERENT_ABOVE = 1e-11, 1e-3
_SMALL = 1e-9
"""Smaller sides cannot be compared relatively. Zeros without an error are equal, others need more digits."""

_SIGNED, _POSITIVE, _COMPLEX = 12, 16, 12
NUM_REAL = _SIGNED + _POSITIVE
_CHUNK = 1000
"""Equations tested at once: their values fit into the processor's cache."""


def _points(seed: int = 2026) -> NDArray[np.complex128]:
    """Return points ``[variables, points]``: of both signs, positive (half of them below 1), then complex ones."""
    generator = np.random.default_rng(seed)

    def drawn(low: float, high: float, count: int, signs: Sequence[float] = (1.0,)) -> NDArray[np.float64]:
        shape = (NUM_VARIABLES, count)
        return generator.uniform(low, high, shape) * generator.choice(signs, shape)

    both = (-1.0, 1.0)
    parts = [
        drawn(0.2, 3.0, _SIGNED, both),
        drawn(0.15, 0.95, _POSITIVE // 2),
        drawn(1.1, 3.0, _POSITIVE // 2),
        drawn(0.2, 2.5, _COMPLEX, both) + 1j * drawn(0.2, 1.2, _COMPLEX, both),
    ]
    return np.concatenate(parts, axis=1).astype(np.complex128)


POINTS = _points()
POINTS.setflags(write=False)


def verify(
    table: ExpressionTable,
    equations: Sequence[int],
    least_different: float = LEAST_DIFFERENT,
    *,
    branches: bool = False,
) -> NDArray[np.int8]:
    """Test ``equations``, expressions with root ``Equality``.

    The sides of a true equation are equal at all real points where both are defined as real functions, and at all
    complex ones; at 8 of either at least. The sides of a false one differ by more than 0.1 % at a share
    ``least_different`` of the real points and of the complex ones. Doubtful points are evaluated again with 50 digits,
    or do not count if the equation cannot be true.

    Args:
        table: holds the expressions.
        equations: what to test.
        least_different: the share of points.
        branches: an equation with a logarithm, an inverse function or a root is true if it holds at the real points:
            ``log(x*y) = log(x) + log(y)`` does, but not at all complex ones.

    Returns:
        int8 ``[equations]``: ``TRUE``, ``FALSE`` or ``UNDECIDED``.
    """
    chunks = [equations[begin : begin + _CHUNK] for begin in range(0, len(equations), _CHUNK)]
    parts = [_verify_chunk(table, chunk, least_different, branches) for chunk in chunks]
    return np.concatenate([np.empty(0, np.int8), *parts])


def _verify_chunk(
    table: ExpressionTable, equations: Sequence[int], least_different: float, branches: bool
) -> NDArray[np.int8]:
    sides = [side for equation in equations for side in table.children[equation]]
    values = evaluate(table, sides, POINTS, NUM_REAL)
    comparison = _compare(values.take(np.s_[0::2]), values.take(np.s_[1::2]))
    for row in np.flatnonzero((comparison == DOUBTFUL).any(1) & ~_is_settled(comparison)).tolist():
        _settle(table, equations[row], comparison[row])
    real, imaginary = comparison[:, :NUM_REAL], comparison[:, NUM_REAL:]
    true = _holds(real)
    on_plane = _holds(imaginary)
    if branches:
        on_plane |= np.array([_has_branches(table, equation) for equation in equations], bool)
    false = _fails(real, least_different) & _fails(imaginary, least_different)
    return np.where(true & on_plane, TRUE, np.where(false, FALSE, UNDECIDED)).astype(np.int8)


def _compare(left: Values, right: Values) -> NDArray[np.int8]:
    """Return how the sides compare at each point: ``[equations, points]`` of the codes above."""
    magnitude = np.maximum(np.abs(left.value), np.abs(right.value))
    difference = np.abs(left.value - right.value)
    error = left.error + right.error
    comparison = np.full(magnitude.shape, BETWEEN, dtype=np.int8)
    comparison[difference <= _EQUAL_BELOW * magnitude] = EQUAL
    comparison[difference > _DIFFERENT_ABOVE * magnitude + error] = DIFFERENT
    comparison[(error > _EQUAL_BELOW * magnitude) & (comparison != DIFFERENT)] = DOUBTFUL
    comparison[magnitude < _SMALL] = DOUBTFUL
    comparison[(magnitude == 0) & (error == 0)] = EQUAL
    status = np.maximum(left.status, right.status)
    comparison[status == functions.DOUBTFUL] = DOUBTFUL
    comparison[status == functions.UNDEFINED] = UNUSABLE
    return comparison


def _holds(comparison: NDArray[np.int8]) -> NDArray[np.bool_]:
    equal = comparison == EQUAL
    return (equal | (comparison == UNUSABLE)).all(1) & (equal.sum(1) >= LEAST_USABLE)


def _fails(comparison: NDArray[np.int8], least_different: float) -> NDArray[np.bool_]:
    usable = ((comparison != UNUSABLE) & (comparison != DOUBTFUL)).sum(1)
    return (usable >= LEAST_USABLE) & ((comparison == DIFFERENT).sum(1) >= least_different * usable)


def _is_settled(comparison: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return which equations cannot be true, whatever their doubtful points are; these points do not count."""
    neither = np.zeros(len(comparison), bool)
    for part in (comparison[:, :NUM_REAL], comparison[:, NUM_REAL:]):
        differs, between = (part == DIFFERENT).any(1), (part == BETWEEN).any(1)
        neither |= (differs | between) & (part == EQUAL).any(1)
    return neither


def _settle(table: ExpressionTable, equation: int, comparison: NDArray[np.int8]) -> None:
    """Compare the sides at the points in doubt with 50 digits; changes ``comparison``."""
    doubtful = np.flatnonzero(comparison == DOUBTFUL)
    constant = not table.variables[equation]
    for point in doubtful[:1].tolist() if constant else doubtful.tolist():
        code = _exact_comparison(table, equation, POINTS[:, point].tolist(), real=point < NUM_REAL)
        comparison[doubtful if constant else point] = code


def _exact_comparison(table: ExpressionTable, equation: int, variables: Sequence[complex], *, real: bool) -> int:
    """Return how the sides compare with 50 digits where ``var_i`` is ``variables[i]``; ``UNUSABLE`` if undefined."""
    try:
        left, right = (evaluate_exactly(table, side, variables, real=real) for side in table.children[equation])
    except UndefinedValueError:
        return UNUSABLE
    magnitude, difference = max(abs(left), abs(right)), abs(left - right)
    if difference <= _EQUAL_BELOW * magnitude:
        return EQUAL
    return DIFFERENT if difference > _DIFFERENT_ABOVE * magnitude else BETWEEN


def _has_branches(table: ExpressionTable, equation: int) -> bool:
    """Return whether a logarithm, an inverse function or a power with an exponent that is no integer occurs."""
    for node in table.subexpressions(table.children[equation]):
        label = table.label[node]
        if label == "Pow":
            exponent = table.label[table.children[node][1]]
            if exponent not in CONSTANTS or not CONSTANTS[exponent].is_integer():
                return True
        elif label in FUNCTIONS and FUNCTIONS[label].has_branches:
            return True
    return False
