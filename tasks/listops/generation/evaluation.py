"""The values of ListOps expressions: the digits that are their labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from treemem.trees.forest import Forest
from treemem.trees.formats.listops import DIGITS
from treemem.trees.formats.listops_arrays import Expressions, expressions_of_forest
from treemem.trees.postorder import concatenated_ranges, stable_order


def evaluate_expressions(forest: Forest) -> NDArray[np.int64]:
    """Return the value of each tree, in either form; int64 ``[trees]``, from 0 to 9.

    ``[MED`` is the median, rounded down; ``[SM`` is the sum modulo 10 (the published generator). ``[PM`` is the product
    modulo 10, ``[FLSUM`` the sum of the first two arguments modulo 10 (other published files).

    Raises:
        GraphError: a tree is not an expression.

    Example:
        >>> from treemem.trees.formats.listops_arrays import expressions_of_lines
        >>> lines = ["[MAX 2 9 [MIN 4 7 ] 0 ]", "[MED 1 2 5 8 ]", "[SM 6 5 9 ]"]
        >>> evaluate_expressions(expressions_of_lines(lines).forest()).tolist()
        [9, 3, 0]
    """
    return values_of(expressions_of_forest(forest))


def values_of(expressions: Expressions) -> NDArray[np.int64]:
    """Return the value of each expression; int64 ``[expressions]``. See :func:`evaluate_expressions`."""
    nary = expressions.forest("nary")
    digit = {name: int(name) for name in DIGITS}
    value = np.array([digit.get(name, -1) for name in nary.labels], np.int64)[nary.label]
    pointer, child = nary.children()
    height = nary.height()
    lists = np.flatnonzero(nary.arity > 0)
    lists = lists[stable_order(height[lists])]
    ends = np.flatnonzero(np.diff(height[lists], append=-1))
    for first, last in zip([0, *(ends[:-1] + 1)], ends + 1, strict=False):
        level = lists[first:last]
        operator = nary.label[level]
        for number in np.unique(operator):
            chosen = level[operator == number]
            count = nary.arity[chosen].astype(np.int64)
            arguments = value[child[concatenated_ranges(pointer[chosen], count)]]
            value[chosen] = _OPERATION[nary.labels[number]](arguments, np.cumsum(count) - count, count)
    return value[nary.begin[1:] - 1]


_Integers = NDArray[np.int64]
_Operation = Callable[[_Integers, _Integers, _Integers], _Integers]


def _median(arguments: _Integers, begin: _Integers, count: _Integers) -> _Integers:
    place = np.repeat(np.arange(len(count)), count)
    ordered = np.sort(place * 10 + arguments) % 10
    return (ordered[begin + (count - 1) // 2] + ordered[begin + count // 2]) // 2


def _product(arguments: _Integers, begin: _Integers, count: _Integers) -> _Integers:
    exact = np.multiply.reduceat(arguments.astype(object), begin)  # int64 holds 20 factors only
    return (exact % 10).astype(np.int64)


def _first_two(arguments: _Integers, begin: _Integers, count: _Integers) -> _Integers:
    second = arguments[np.minimum(begin + 1, len(arguments) - 1)]
    return (arguments[begin] + np.where(count > 1, second, 0)) % 10


_OPERATION: dict[str, _Operation] = {
    "[MIN": lambda arguments, begin, count: np.minimum.reduceat(arguments, begin),
    "[MAX": lambda arguments, begin, count: np.maximum.reduceat(arguments, begin),
    "[FIRST": lambda arguments, begin, count: arguments[begin],
    "[LAST": lambda arguments, begin, count: arguments[begin + count - 1],
    "[MED": _median,
    "[SM": lambda arguments, begin, count: np.add.reduceat(arguments, begin) % 10,
    "[PM": _product,
    "[FLSUM": _first_two,
}
"""The operators, over the arguments of several lists: all arguments, where each list's begin, and their number."""
