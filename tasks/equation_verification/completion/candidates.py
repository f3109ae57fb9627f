"""Candidates for a blank: 1,470 small expressions, in classes of equal value."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, TreememError, shown
from treemem.records import Record, read_records
from treemem.schedule import SubtreeIndex
from treemem.tasks.equation_verification.generation.evaluation import (
    UndefinedValueError,
    evaluate,
    evaluate_exactly,
)
from treemem.tasks.equation_verification.generation.expressions import (
    ARITHMETIC_FUNCTIONS,
    TRIGONOMETRIC_FUNCTIONS,
    ExpressionTable,
)
from treemem.tasks.equation_verification.generation.functions import DOUBTFUL, UNDEFINED, USABLE
from treemem.tasks.equation_verification.generation.verification import POINTS
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.labels import EQUALITY, NUMBER, UNIFIED_LABELS, variable_label
from treemem.trees.formats.preorder import parse_preorder
from treemem.trees.formats.record_reader import number_text
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

_MOST_CLASSES = 2**31
_EQUAL_BELOW = 1e-9
"""The largest relative difference of equal values. Rounding causes about 1e-13."""

LEAVES: tuple[str, ...] = (
    *(variable_label(index) for index in range(5)),
    *("NegativeOne:-1", "Pi:pi", "One:1", "Half:1/2"),
    *(f"Integer:{integer}" for integer in (0, 2, 3, 4, 10, -2, -3, 1)),
    *("Rational:2/5", "Rational:-1/2", "Rational:0", "Float:0.7"),
)
"""The 21 leaves of the published candidates, in their order."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Expressions to put into a blank.

    Attributes:
        forest: the expressions as spelled: ``One:1`` and ``Integer:1`` are two leaves.
        value_class: int64 ``[candidates]``, numbered from 0 without a gap; the same for equal values.

    Raises:
        GraphError: the value classes do not fit.
    """

    forest: Forest
    value_class: NDArray[np.int64]

    def __post_init__(self) -> None:
        known = np.unique(self.value_class)
        if len(self.value_class) != len(self.forest) or not np.array_equal(known, np.arange(len(known))):
            raise GraphError(
                f"{len(self.forest)} candidates have {len(self.value_class)} value classes, {len(known)} distinct; "
                "give each candidate one, numbered from 0 without a gap"
            )

    def __len__(self) -> int:
        return len(self.forest)

    @property
    def num_classes(self) -> int:
        """Number of value classes."""
        return int(self.value_class.max()) + 1

    @cached_property
    def unified(self) -> Forest:
        """The expressions as networks read them: ``One:1`` becomes ``Integer:1``."""
        return _unified(self.forest)

    @cached_property
    def reading(self) -> NDArray[np.int64]:
        """int64 ``[candidates]``, the same number for candidates that networks read alike."""
        forest = self.unified
        vocabulary = Vocabulary.from_forest(forest, number=None if forest.value is None else NUMBER)
        return SubtreeIndex(forest, vocabulary).number[forest.begin[1:] - 1]

    def text(self, candidate: int) -> str:
        """Return a candidate as infix text."""
        return format_equation(self.forest[candidate])


@cache
def make_candidates() -> Candidates:
    """Return the candidates of Arabshahi et al. 2020.

    21 leaves, ``sin cos csc sec tan cot`` of a leaf, and the sum, product and power of two leaves: 1,470 in 601 value
    classes. The published classes differ for one pair: ``(1/2)*(2/5)`` and ``-1/2 + 0.7`` are both 0.2, but rounding
    separated them.
    """
    trees = [Tree(label) for label in LEAVES]
    leaves = tuple(trees)
    trees += [Tree(function, [leaf]) for function, leaf in product(TRIGONOMETRIC_FUNCTIONS, leaves)]
    trees += [Tree(function, pair) for function in ARITHMETIC_FUNCTIONS for pair in product(leaves, leaves)]
    forest = Forest.from_trees(trees)
    return Candidates(forest, value_classes(_unified(forest)))


def read_candidates(source: str | os.PathLike[str]) -> Candidates:
    """Read candidates from a file of records with the fields ``preorder`` and ``class``.

    Args:
        source: a path, JSONL, CSV or Parquet.

    Raises:
        RecipeError: the file does not exist or has no records.
        ParseError: a record lacks a field, or its preorder is not an expression; names the line.
        GraphError: the classes are not numbered from 0 without a gap.
    """
    name = os.fspath(source)
    trees, classes = [], []
    for record in read_records(source, strict=True):
        try:
            tree, number = _candidate_of(record)
        except ParseError as error:
            raise error.at(record.line, name) from error
        except TreememError as error:
            raise type(error)(f"{name}, line {record.line}: {error}") from error
        trees.append(tree)
        classes.append(number)
    if not trees:
        raise RecipeError(f"there are no candidates in {name}")
    return Candidates(Forest.from_trees(trees), np.array(classes, np.int64))


def _candidate_of(record: Record) -> tuple[Tree, int]:
    text, number = record.fields.get("preorder"), record.fields.get("class")
    if not isinstance(text, str):
        raise ParseError(f"the field 'preorder' is {text!r}", expected="an expression in preorder")
    try:
        value_class = int(number_text(number))
    except ValueError as error:
        raise ParseError(f"the field 'class' is {number!r}", expected="a whole number") from error
    if not 0 <= value_class < _MOST_CLASSES:
        raise ParseError(f"the field 'class' is {shown(number, 50)}", expected=f"from 0 to {_MOST_CLASSES - 1}")
    tree = parse_preorder(text, unify=False)
    if tree.label == EQUALITY:
        raise ParseError(f"{text!r:.50} is an equation", expected="an expression")
    return tree, value_class


def _unified(forest: Forest) -> Forest:
    """Return ``forest`` with leaves spelled as readers of equations spell them."""
    known = list(dict.fromkeys(UNIFIED_LABELS.get(label, label) for label in forest.labels))
    number = np.array([known.index(UNIFIED_LABELS.get(label, label)) for label in forest.labels], np.int32)
    return Forest(tuple(known), number[forest.label], forest.arity, forest.begin, forest.value)


def value_classes(forest: Forest) -> NDArray[np.int64]:
    """Return the class of each expression, int64 ``[trees]``, numbered by first appearance.

    Expressions of one class have values at the same points, and equal ones. So all expressions that divide by zero
    everywhere are one class. The points are those of the numerical test. Values are principal values; ``0^0`` is 1.

    Args:
        forest: expressions that :func:`.evaluate` knows, with leaves as readers spell them.
    """
    table = ExpressionTable()
    distinct, expression_of_tree = np.unique(table.from_forest(forest), return_inverse=True)
    values = evaluate(table, distinct.tolist(), POINTS)
    value, error, status = values.value.copy(), values.error.copy(), values.status.copy()
    for row, point in np.argwhere(status == DOUBTFUL).tolist():
        try:
            value[row, point] = complex(evaluate_exactly(table, int(distinct[row]), POINTS[:, point].tolist()))
            error[row, point], status[row, point] = 0.0, USABLE
        except UndefinedValueError:
            status[row, point] = UNDEFINED
    defined = status == USABLE

    def equal(point: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
        one, other = value[first, point], value[second, point]
        largest = np.maximum(np.abs(one), np.abs(other))
        close = np.abs(one - other) <= _EQUAL_BELOW * largest + error[first, point] + error[second, point]
        return (defined[first, point] == defined[second, point]) & (close | ~defined[first, point])

    every = np.arange(len(distinct))
    first, second = np.nonzero(np.triu(equal(-1, every[:, None], every), 1))  # all pairs, the earlier first
    for point in range(value.shape[1] - 1):
        same = equal(point, first, second)
        first, second = first[same], second[same]
    representative = every.copy()
    np.minimum.at(representative, second, first)
    number: dict[int, int] = {}
    keys = representative[expression_of_tree].tolist()
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
