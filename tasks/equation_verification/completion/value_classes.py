"""Which expressions have the same value wherever they have one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.evaluation import (
    DOUBTFUL,
    UNDEFINED,
    USABLE,
    Points,
    UndefinedValueError,
    draw_points,
    evaluate,
    evaluate_exactly,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.trees.forest import Forest

_EQUAL_BELOW = 1e-9
"""Values whose difference is smaller, relative to the larger one, are equal; rounding is some 1e-13 of them at most."""


def value_classes(forest: Forest) -> NDArray[np.int64]:
    """The class of each expression: expressions of one class are equal in value.

    They are evaluated with principal values at 24 real and 24 complex points; ``0^0`` is 1. Equal are those that have
    a value at the same points and the same value there, so that whatever divides by zero everywhere is one class.

    Args:
        forest: expressions of the constants, variables and functions that
            :func:`treemem.tasks.equation_verification.generation.evaluation.evaluate` knows, as readers give them
            (``One:1`` read as ``Integer:1``).

    Returns:
        int64 ``[trees]``; classes are numbered by first appearance.
    """
    table, points = ExpressionTable(), draw_points()
    expressions = np.array([table.from_tree(tree) for tree in forest], np.int64)
    distinct, expression_of_tree = np.unique(expressions, return_inverse=True)
    value, error, defined = _settled_values(table, distinct.tolist(), points)
    first, second = _pairs_equal_at(value[:, -1], error[:, -1], defined[:, -1])
    for point in range(value.shape[1] - 1):
        equal = _equal(value[:, point], error[:, point], defined[:, point], first, second)
        first, second = first[equal], second[equal]
    representative = np.arange(len(distinct))
    np.minimum.at(representative, second, first)
    return _numbered_by_appearance(representative[expression_of_tree])


def _settled_values(
    table: ExpressionTable, expressions: list[int], points: Points
) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]:
    """Values, their error bounds and whether they are there, ``[expressions, points]``; doubts settled by 50 digits."""
    values = evaluate(table, expressions, points)
    value, error, status = values.value.copy(), values.error.copy(), values.status.copy()
    for row, point in np.argwhere(status == DOUBTFUL).tolist():
        try:
            exact = evaluate_exactly(table, expressions[row], points.values[:, point].tolist())
        except UndefinedValueError:
            status[row, point] = UNDEFINED
        else:
            value[row, point], error[row, point], status[row, point] = complex(exact), 0.0, USABLE
    return value, error, status == USABLE


def _pairs_equal_at(
    value: NDArray[np.complex128], error: NDArray[np.float64], defined: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All pairs of expressions, the earlier first, that are equal at one point; arguments ``[expressions]``."""
    every = np.arange(len(value))
    first, second = np.nonzero(_equal(value, error, defined, every[:, None], every[None, :]))
    ordered = first < second
    return first[ordered], second[ordered]


def _equal(
    value: NDArray[np.complex128],
    error: NDArray[np.float64],
    defined: NDArray[np.bool_],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether the expressions ``first`` and ``second`` are equal at one point, or both have no value there."""
    largest = np.maximum(np.abs(value[first]), np.abs(value[second]))
    close = np.abs(value[first] - value[second]) <= _EQUAL_BELOW * largest + error[first] + error[second]
    return (defined[first] == defined[second]) & (close | ~defined[first])


def _numbered_by_appearance(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    _, place, number = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(place), np.int64)
    rank[np.argsort(place)] = np.arange(len(place))
    return rank[number]
