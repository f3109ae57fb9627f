"""Test numerically whether equations are true, false or neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation import evaluation
from treemem.tasks.equation_verification.generation.evaluation import (
    NUM_REAL,
    POINTS,
    UndefinedValueError,
    Values,
    evaluate,
    evaluate_exactly,
    meets_cut,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable

FALSE, TRUE, UNDECIDED = 0, 1, -1

LEAST_USABLE = 8
"""The smallest number of usable real points, and of usable complex ones."""

LEAST_DIFFERENT = 0.75
"""The sides of a false equation differ at this share of the usable real points, and of the complex ones, or more."""

_EQUAL_BELOW, _DIFFERENT_ABOVE = 1e-11, 1e-3
_SMALL = 1e-9
"""Smaller sides cannot be compared relatively. Zeros without an error are equal, others undecided."""

UNUSABLE, EQUAL, BETWEEN, DIFFERENT, DOUBTFUL = range(5)
"""How the sides compare at a point. Sides that differ by less than 0.1 % are ``BETWEEN``."""


def verify(
    table: ExpressionTable, equations: Sequence[int], least_different: float = LEAST_DIFFERENT
) -> NDArray[np.int8]:
    """Test ``equations``, expressions with root ``Equality``.

    The sides of a true equation are equal wherever both are defined, at 8 real and 8 complex points at least. If they
    take roots of negative numbers, both sides take them of the same expressions, so that the verdict does not depend on
    the side from which a branch cut is met. The sides of a false equation differ by more than 0.1 % at a share
    ``least_different`` of the real points and of the complex ones. Doubtful points are evaluated again with 50 digits.

    Returns:
        int8 ``[equations]``: ``TRUE``, ``FALSE`` or ``UNDECIDED``.
    """
    if not len(equations):
        return np.empty(0, np.int8)
    sides = [side for equation in equations for side in table.children[equation]]
    values = evaluate(table, sides)
    left, right = values.take(np.s_[0::2]), values.take(np.s_[1::2])
    comparison = compare(left, right)
    is_real = np.arange(POINTS.shape[1]) < NUM_REAL
    for row in np.flatnonzero(_needs_digits(comparison, is_real, least_different)).tolist():
        _settle(table, equations[row], comparison[row])
    verdict = _judge(comparison, is_real, least_different)
    on_cut = ((left.on_cut | right.on_cut) & (comparison != UNUSABLE)).any(1)
    hanging = np.flatnonzero(on_cut & (verdict == TRUE))
    alike = _meet_cuts_alike(table, [equations[row] for row in hanging.tolist()])
    verdict[hanging[~alike]] = UNDECIDED
    return verdict


def compare(left: Values, right: Values) -> NDArray[np.int8]:
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
    comparison[status == evaluation.DOUBTFUL] = DOUBTFUL
    comparison[status == evaluation.UNDEFINED] = UNUSABLE
    return comparison


def _judge(comparison: NDArray[np.int8], is_real: NDArray[np.bool_], least_different: float) -> NDArray[np.int8]:
    """Return the verdicts, without the points in doubt."""
    usable = (comparison != UNUSABLE) & (comparison != DOUBTFUL)
    true = ((comparison == EQUAL) | (comparison == UNUSABLE)).all(1)
    false = np.ones(len(comparison), dtype=bool)
    enough = np.ones(len(comparison), dtype=bool)
    for sort in (is_real, ~is_real):
        num_usable = usable[:, sort].sum(1)
        enough &= num_usable >= LEAST_USABLE
        false &= (comparison[:, sort] == DIFFERENT).sum(1) >= least_different * num_usable
    return np.where(enough & true, TRUE, np.where(enough & false, FALSE, UNDECIDED)).astype(np.int8)


def _needs_digits(
    comparison: NDArray[np.int8], is_real: NDArray[np.bool_], least_different: float
) -> NDArray[np.bool_]:
    """Return which equations have a verdict that may depend on points in doubt."""
    doubtful = comparison == DOUBTFUL
    verdicts = [
        _judge(np.where(doubtful, code, comparison).astype(np.int8), is_real, least_different)
        for code in (EQUAL, DIFFERENT, UNUSABLE)
    ]
    return doubtful.any(1) & ~((verdicts[0] == verdicts[1]) & (verdicts[1] == verdicts[2]))


def _settle(table: ExpressionTable, equation: int, comparison: NDArray[np.int8]) -> None:
    """Compare the sides of an equation at its points in doubt with 50 digits; changes ``comparison``."""
    left, right = table.children[equation]
    for point in np.flatnonzero(comparison == DOUBTFUL).tolist():
        variables = POINTS[:, point].tolist()
        try:
            first, second = (evaluate_exactly(table, side, variables) for side in (left, right))
        except UndefinedValueError:
            comparison[point] = UNUSABLE
            continue
        magnitude = max(abs(first), abs(second))
        comparison[point] = BETWEEN if magnitude < _SMALL else compare_exactly(first, second)


def compare_exactly(left: Any, right: Any) -> int:
    """Return how two numbers of 50 digits compare: ``EQUAL``, ``BETWEEN`` or ``DIFFERENT``."""
    magnitude, difference = max(abs(left), abs(right)), abs(left - right)
    if difference <= _EQUAL_BELOW * magnitude:
        return EQUAL
    return DIFFERENT if difference > _DIFFERENT_ABOVE * magnitude else BETWEEN


def _meet_cuts_alike(table: ExpressionTable, equations: Sequence[int]) -> NDArray[np.bool_]:
    """Return for each equation whether both sides take roots of the same negative expressions.

    If they do not, a rounding error or the sign of a zero decides whether the sides look equal.
    """
    powers_of = {
        side: [node for node in table.postorder(side) if table.label[node] == "Pow"]
        for equation in equations
        for side in table.children[equation]
    }
    powers = sorted({power for found in powers_of.values() for power in found})
    base, exponent = (evaluate(table, [table.children[power][place] for power in powers]) for place in (0, 1))
    cut = {powers[row] for row in np.flatnonzero(meets_cut(base, exponent).any(1)).tolist()}
    bases = {side: {table.children[power][0] for power in found if power in cut} for side, found in powers_of.items()}
    alike = [bases[left] == bases[right] for left, right in (table.children[equation] for equation in equations)]
    return np.array(alike, dtype=bool)
