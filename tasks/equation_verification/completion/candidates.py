"""What may stand in a blank: 1,470 small expressions, in classes of equal value."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, TreememError
from treemem.records import Record, read_records
from treemem.schedule import SubtreeIndex
from treemem.tasks.equation_verification.completion.value_classes import value_classes
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_labels import EQUALITY, NUMBER, UNIFIED_LABELS, variable_label
from treemem.trees.forest import Forest
from treemem.trees.preorder import parse_preorder
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

_MOST_CLASSES = 2**31
LEAVES: tuple[str, ...] = (
    *(variable_label(index) for index in range(5)),
    *("NegativeOne:-1", "Pi:pi", "One:1", "Half:1/2"),
    *(f"Integer:{integer}" for integer in (0, 2, 3, 4, 10, -2, -3, 1)),
    *("Rational:2/5", "Rational:-1/2", "Rational:0", "Float:0.7"),
)
"""The 21 leaves of the published candidates, in their order."""

TRIGONOMETRIC, ARITHMETIC = ("sin", "cos", "csc", "sec", "tan", "cot"), ("Add", "Mul", "Pow")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Expressions to put into a blank.

    Attributes:
        forest: the expressions, spelled as they were given: ``One:1`` and ``Integer:1`` are two leaves.
        value_class: int64 ``[candidates]``, from 0 without a gap; equal where values are.
    """

    forest: Forest
    value_class: NDArray[np.int64]

    def __post_init__(self) -> None:
        known = np.unique(self.value_class)
        if len(self.value_class) != len(self.forest) or not np.array_equal(known, np.arange(len(known))):
            raise GraphError(
                f"{len(self.forest)} candidates need as many value classes, numbered from 0 without a gap; these are "
                f"{len(self.value_class)}, {known[:1].tolist()} to {known[-1:].tolist()}, {len(known)} different ones"
            )
        if not len(self.forest):
            raise GraphError("there must be at least one candidate")

    def __len__(self) -> int:
        return len(self.forest)

    @property
    def num_classes(self) -> int:
        """Number of value classes."""
        return int(self.value_class.max()) + 1

    @cached_property
    def unified(self) -> Forest:
        """The expressions as networks read them, leaves that say the same being one: ``One:1`` is ``Integer:1``."""
        return _unified(self.forest)

    @cached_property
    def reading(self) -> NDArray[np.int64]:
        """int64 ``[candidates]``, equal for candidates that networks cannot tell apart, and only for those."""
        forest = self.unified
        vocabulary = Vocabulary.from_forest(forest, number=None if forest.value is None else NUMBER)
        return SubtreeIndex(forest, vocabulary).number[forest.begin[1:] - 1]

    def text(self, candidate: int) -> str:
        """The infix text of one of them."""
        return format_equation(self.forest[candidate])


@cache
def make_candidates() -> Candidates:
    """The candidates of Arabshahi et al. 2020, made anew.

    21 leaves, ``sin cos csc sec tan cot`` of a leaf, and the sum, product and power of two leaves: 1,470. Their 601
    classes are those of the published candidates but for one pair: ``(1/2)*(2/5)`` and ``-1/2 + 0.7`` are both 0.2, and
    published as classes of their own, for rounding tells them apart.
    """
    trees = [Tree(label) for label in LEAVES]
    leaves = tuple(trees)
    trees += [Tree(function, [leaf]) for function, leaf in product(TRIGONOMETRIC, leaves)]
    trees += [Tree(function, pair) for function in ARITHMETIC for pair in product(leaves, leaves)]
    forest = Forest.from_trees(trees)
    return Candidates(forest, value_classes(_unified(forest)))


def read_candidates(source: str | os.PathLike[str]) -> Candidates:
    """Read candidates from a file of records with the fields ``preorder`` and ``class``.

    Args:
        source: a path, JSONL, CSV or Parquet.

    Raises:
        RecipeError: there is no such file, or it holds no records.
        ParseError: a record without one of the fields, or whose preorder is no expression; says where.
        GraphError: classes that are not numbered from 0 without a gap.
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
        value_class = int(str(number))
    except ValueError as error:
        raise ParseError(f"the field 'class' is {number!r}", expected="a whole number") from error
    if not 0 <= value_class < _MOST_CLASSES:
        raise ParseError(f"the field 'class' is {number!r:.50}", expected=f"from 0 to {_MOST_CLASSES - 1}")
    tree = parse_preorder(text, unify=False)
    if tree.label == EQUALITY:
        raise ParseError(f"{text!r:.50} is an equation", expected="an expression")
    return tree, value_class


def _unified(forest: Forest) -> Forest:
    """``forest`` with each leaf spelled in the one way that readers of equations have."""
    known = list(dict.fromkeys(UNIFIED_LABELS.get(label, label) for label in forest.labels))
    number = np.array([known.index(UNIFIED_LABELS.get(label, label)) for label in forest.labels], np.int32)
    return Forest(tuple(known), number[forest.label], forest.arity, forest.begin, forest.value)
