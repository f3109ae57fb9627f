"""Trees with their edges reversed: the schedule of a pass from the roots to the leaves."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import plain_tensors
from treemem.errors import GraphError
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch

_turned: WeakKeyDictionary[Schedule, dict[bool, TreeBatch]] = WeakKeyDictionary()


def reversed_batch(batch: TreeBatch, by_kind: bool = True) -> TreeBatch:
    """The nodes of ``batch`` with every edge reversed: each node's only child is its parent; made once.

    Every node has a row of its own, for what comes from above differs even between equal subtrees. The trees' roots
    are the leaves of the reversed batch, and its encodings are still those of the roots.

    Args:
        batch: the trees.
        by_kind: whether the kind of a node that is not a root is ``position * num_kinds + kind``, with the largest kind
            of the batch being ``num_kinds - 1``; otherwise it is its position among its siblings. A root keeps its
            kind.

    Raises:
        GraphError: a node with several parents.
    """
    known = _turned.setdefault(batch.schedule, {})
    if by_kind not in known:
        with plain_tensors():
            known[by_kind] = _turn(batch, by_kind)
    return known[by_kind]


def num_kinds_of(batch: TreeBatch) -> int:
    """One more than the largest kind of ``batch``."""
    return max((segment.kind for level in batch.schedule.levels for segment in level.segments), default=0) + 1


def _turn(batch: TreeBatch, by_kind: bool) -> TreeBatch:
    schedule = batch.schedule.to("cpu")
    pointer, child, root = _children_of_nodes(batch)
    num_parents = np.bincount(child, minlength=schedule.num_nodes)
    if (num_parents > 1).any():
        node = int(np.argmax(num_parents > 1))
        raise GraphError(f"node {node} has {int(num_parents[node])} parents; on the way down every node must have one")
    arity = np.diff(pointer)
    parent = np.repeat(np.arange(schedule.num_nodes), arity)
    position = np.arange(len(child)) - np.repeat(pointer[:-1], arity)
    kind = schedule.kind_of_row.numpy()[schedule.row_of_node.numpy()].copy()
    kind[child] = position * num_kinds_of(batch) + kind[child] if by_kind else position
    upside_down = Schedule.from_edges(
        schedule.num_nodes, parent, child, kind=kind, roots=root, allow_several_parents=True
    )  # a node may have several children, which are parents now
    return TreeBatch(upside_down.to(batch.device), None, trees_per_example=batch.trees_per_example)


def _children_of_nodes(batch: TreeBatch) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The nodes' children, as pointer and child, and the trees' roots."""
    schedule = batch.schedule.to("cpu")
    if schedule.shared:
        assert batch.forest is not None
        return *batch.forest.children(), batch.forest.begin[1:] - 1
    node_of_row = schedule.node_of_row.numpy()
    row_arity = schedule.arity_of_row
    arity = np.empty(schedule.num_nodes, np.int64)
    arity[node_of_row] = row_arity
    parent = np.repeat(node_of_row, row_arity)
    by_parent = np.argsort(parent, kind="stable")
    pointer = np.concatenate([np.zeros(1, np.int64), np.cumsum(arity)])
    child = node_of_row[schedule.child.numpy()[by_parent]]
    return pointer, child, node_of_row[schedule.row_of_root.numpy()]


def nodes_of_roots(batch: TreeBatch) -> torch.Tensor:
    """int64 ``[trees]``, the root of each tree of a batch whose nodes have rows of their own."""
    return batch.schedule.node_of_row[batch.schedule.row_of_root]
