"""The seven relations of natural logic between two formulas, from their truth tables."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR, VARIABLES

RELATIONS = ("=", "<", ">", "^", "|", "v", "#")
"""Equivalence, forward and reverse entailment, negation, alternation, cover, independence (MacCartney 2009)."""

VARIABLE_TABLES = {
    name: sum(1 << world for world in range(64) if world >> place & 1) for place, name in enumerate(VARIABLES)
}
"""Where each variable is true, a bit for each of 64 worlds; in world ``w`` that of place ``k`` is bit ``k`` of ``w``
(counted from 0)."""

_EVERYWHERE = np.uint64(2**64 - 1)
_WORD = {word: code for code, word in enumerate((NOT, AND, OR), start=1)}


def truth_tables(forest: Forest) -> NDArray[np.uint64]:
    """Where each formula is true: uint64 ``[trees]``, a bit a world; see ``VARIABLE_TABLES``.

    Args:
        forest: formulas, in either form of :func:`treemem.trees.parse_logic`.

    Raises:
        GraphError: a tree that is no formula.
    """
    table = np.zeros(forest.num_nodes, np.uint64)
    code = np.array([_WORD.get(label, 0) for label in forest.labels], np.int8)[forest.label]
    for place, name in enumerate(forest.labels):
        if name in VARIABLE_TABLES:
            table[forest.label == place] = VARIABLE_TABLES[name]
    is_leaf = forest.arity == 0
    waits = np.where(is_leaf, code, 0)  # an operator that has not met all its operands
    is_formula = np.array([label in VARIABLE_TABLES for label in forest.labels], bool)[forest.label] & is_leaf
    pointer, child = forest.children()
    height = forest.height()
    order = np.argsort(height, kind="stable")
    bounds = np.searchsorted(height[order], np.arange(1, int(height.max(initial=0)) + 2))
    for first, last in itertools.pairwise(bounds):
        nodes = order[first:last]
        _combine(forest, nodes, pointer, child, code, table, waits, is_formula)
    root = forest.begin[1:] - 1
    if not is_formula[root].all():
        tree = int(np.argmin(is_formula[root]))
        raise GraphError(f"tree {tree} is no formula of {', '.join(VARIABLES)}, {NOT}, {AND} and {OR}")
    return table[root]


def _combine(
    forest: Forest,
    nodes: NDArray[np.int64],
    pointer: NDArray[np.int64],
    child: NDArray[np.int64],
    code: NDArray[np.int8],
    table: NDArray[np.uint64],
    waits: NDArray[np.int8],
    is_formula: NDArray[np.bool_],
) -> None:
    """Enter what the nodes of one height are: whole formulas, or an operator that waits for its left operand."""
    constituent = np.array([label == CONSTITUENT for label in forest.labels], bool)[forest.label[nodes]]
    unary = nodes[~constituent & (forest.arity[nodes] == 1) & (code[nodes] == _WORD[NOT])]
    operand = child[pointer[unary]]
    table[unary], is_formula[unary] = ~table[operand], is_formula[operand]

    binary = nodes[~constituent & (forest.arity[nodes] == 2) & (code[nodes] > _WORD[NOT])]
    left, right = child[pointer[binary]], child[pointer[binary] + 1]
    table[binary] = _joined(code[binary], table[left], table[right])
    is_formula[binary] = is_formula[left] & is_formula[right]

    pairs = nodes[constituent & (forest.arity[nodes] == 2)]
    left, right = child[pointer[pairs]], child[pointer[pairs] + 1]
    operator_first = (waits[left] > 0) & (forest.arity[left] == 0) & is_formula[right]
    negated = operator_first & (waits[left] == _WORD[NOT])
    table[pairs[negated]], is_formula[pairs[negated]] = ~table[right[negated]], True
    waiting = operator_first & ~negated
    table[pairs[waiting]], waits[pairs[waiting]] = table[right[waiting]], waits[left[waiting]]
    whole = is_formula[left] & (waits[right] > 0) & (forest.arity[right] == 2)
    table[pairs[whole]] = _joined(waits[right[whole]], table[left[whole]], table[right[whole]])
    is_formula[pairs[whole]] = True


def _joined(operator: NDArray[np.int8], left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.where(operator == _WORD[AND], left & right, left | right)


def relations(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The relation of each pair of truth tables, as an index into ``RELATIONS``, int64 ``[pairs]``.

    The first that holds, in the order of ``RELATIONS``: equal tables; one within the other; complements; never both
    true; always one of them true; none of these.
    """
    holds = [
        left == right,
        left & ~right == 0,
        right & ~left == 0,
        left == ~right,
        left & right == 0,
        left | right == _EVERYWHERE,
    ]
    return np.select(holds, list(range(6)), default=6).astype(np.int64)
