"""What is left to run of a batch where the states of some subtrees are known from before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.schedule.schedule import GIVEN, Schedule, distinct_numbers, make_levels, nodes_of_trees, run_starts
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.postorder import concatenated_ranges


class RemainingRows(NamedTuple):
    """The rows that are to run, and those they start from.

    Attributes:
        schedule: leaves that are to run, then the given rows, as a segment of level 0 of the kind ``GIVEN``, then the
            inner rows that are to run. ``row_of_node`` is -1 for nodes that nobody needs.
        given: int64, the subtree numbers of the given rows, ascending.
        inner: int64, the subtree numbers of the inner rows that are to run, ascending.
    """

    schedule: Schedule
    given: NDArray[np.int64]
    inner: NDArray[np.int64]


def remaining_rows(index: SubtreeIndex, trees: NDArray[np.int64], known: NDArray[np.bool_]) -> RemainingRows:
    """The schedule of some trees of an indexed forest without what is inside known subtrees.

    Equal subtrees share one row, known or not. Costs what the nodes of the trees cost, whatever their shape.

    Args:
        index: the forest's subtrees.
        trees: int64 ``[trees]``, tree numbers.
        known: bool ``[num_distinct]``, the subtrees whose states are there.
    """
    node, tree_end = nodes_of_trees(index.forest.begin, trees)
    number = index.number[node]
    uncovered = ~_inside_known(index.forest.subtree_begin()[node], node, known[number])
    distinct, _ = distinct_numbers(number[uncovered], index.num_distinct)
    is_given = known[distinct]
    given, computed = distinct[is_given], distinct[~is_given]
    num_leaves = int(np.searchsorted(index.height[computed], 0, side="right"))
    inner = computed[num_leaves:]
    ordered = np.concatenate([computed[:num_leaves], given, inner])
    of_given = slice(num_leaves, num_leaves + len(given))
    row = np.empty(index.num_distinct, np.int64)
    row[ordered] = np.arange(len(ordered))

    arity, height, kind, segment = (array[ordered] for array in (index.arity, index.height, index.kind, index.segment))
    arity[of_given], height[of_given], kind[of_given], segment[of_given] = 0, 0, GIVEN, -1
    starts = run_starts(segment)
    row_of_node = np.where(uncovered, row[number], -1)
    node_of_row = np.empty(len(ordered), np.int64)
    shown = np.flatnonzero(uncovered)[::-1]
    node_of_row[row_of_node[shown]] = shown
    schedule = Schedule(
        num_rows=len(ordered),
        num_nodes=len(number),
        num_trees=len(tree_end),
        levels=make_levels(len(ordered), starts, height[starts], arity, kind[starts]),
        child=torch.from_numpy(row[index.child[concatenated_ranges(index.child_pointer[inner], index.arity[inner])]]),
        row_of_node=torch.from_numpy(row_of_node),
        row_of_root=torch.from_numpy(row_of_node[tree_end - 1]),
        node_of_row=torch.from_numpy(node_of_row),
        kind_of_row=torch.from_numpy(kind),
        symbol=torch.from_numpy(index.symbol[computed[:num_leaves]]),
        function=torch.from_numpy(index.symbol[inner]),
        value=torch.from_numpy(index.value[computed[:num_leaves]]),
        shared=True,
    )
    return RemainingRows(schedule, given, inner)


def _inside_known(
    subtree_begin: NDArray[np.int64], node: NDArray[np.int64], is_known: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which nodes have a known subtree around them, their own not counted.

    Args:
        subtree_begin: where each node's subtree begins in the forest.
        node: the nodes, tree after tree, each tree's in post-order.
        is_known: whether each one's own subtree is known.
    """
    end = np.flatnonzero(is_known)
    begin = end - (node[end] - subtree_begin[end])
    opened = np.bincount(begin, minlength=len(node))
    opened[end] -= 1
    return np.cumsum(opened) > 0
