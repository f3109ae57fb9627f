"""The seven relations of natural logic between two formulas, from their truth tables."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.trees.forest import Forest
from treemem.trees.formats.logic import AND, NOT, OR, VARIABLES

RELATIONS = ("=", "<", ">", "^", "|", "v", "#")
"""Equivalence, forward and reverse entailment, negation, alternation, cover, independence (MacCartney 2009)."""

VARIABLE_TABLES = {
    name: sum(1 << world for world in range(64) if world >> place & 1) for place, name in enumerate(VARIABLES)
}
"""Where each variable is true, a bit for each of 64 worlds; in world ``w`` that of place ``k`` is bit ``k`` of ``w``
(counted from 0)."""

_EVERYWHERE = np.uint64(2**64 - 1)
_ARITY = {**dict.fromkeys(VARIABLES, 0), NOT: 1, AND: 2, OR: 2}


def truth_tables(forest: Forest) -> NDArray[np.uint64]:
    """Return the truth table of each formula: uint64 ``[trees]``, a bit a world; see ``VARIABLE_TABLES``.

    Args:
        forest: formulas, in either form of :func:`treemem.trees.parse_logic`.

    Raises:
        GraphError: a tree is not a formula.
    """
    forest = with_operators(forest)
    _check_formulas(forest)
    called = np.array([*forest.labels, ""])[forest.label]
    table = np.array([VARIABLE_TABLES.get(name, 0) for name in forest.labels], np.uint64)[forest.label]
    pointer, child = forest.children()
    height = forest.height()
    order = np.argsort(height, kind="stable")
    bounds = np.searchsorted(height[order], np.arange(1, int(height.max(initial=0)) + 2))
    for first, last in itertools.pairwise(bounds):
        nodes = order[first:last]
        operand, last_operand = child[pointer[nodes]], child[pointer[nodes + 1] - 1]
        table[nodes] = np.select(
            [called[nodes] == NOT, called[nodes] == AND],
            [~table[operand], table[operand] & table[last_operand]],
            table[operand] | table[last_operand],
        )
    return table[forest.begin[1:] - 1]


def _check_formulas(forest: Forest) -> None:
    """Raise a ``GraphError`` for the first tree with a node that no formula has."""
    wanted = np.array([_ARITY.get(name, -1) for name in forest.labels], np.int64)[forest.label]
    if (wanted != forest.arity).any():
        node = int(np.argmax(wanted != forest.arity))
        tree = int(np.searchsorted(forest.begin, node, side="right")) - 1
        raise GraphError(f"tree {tree + 1} is no formula of {', '.join(VARIABLES)}, {NOT}, {AND} and {OR}")


def relations(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of the first of ``RELATIONS`` that holds between truth tables, int64 ``[pairs]``."""
    holds = [
        left == right,
        left & ~right == 0,
        right & ~left == 0,
        left == ~right,
        left & right == 0,
        left | right == _EVERYWHERE,
    ]
    return np.select(holds, list(range(6)), default=6).astype(np.int64)
