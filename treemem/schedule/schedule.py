"""How a batch of trees will run: rows in the order of their levels, and who reads whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.device_copy import pinned_together, to_device_together
from treemem.errors import GraphError
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.edges import NodeName, find_edge_heights, order_children, plain_node_name
from treemem.trees.forest_arrays import checked_integers
from treemem.trees.postorder import concatenated_ranges, stable_order

GIVEN = -1  # the kind of rows whose states are known from before; they stand among the leaves
_SPARSE = 256  # a batch with fewer nodes than one in so many of the index's subtrees is sorted, not marked


class Segment(NamedTuple):
    """The rows ``begin`` to ``end - 1`` of a level, which have the same kind and arity.

    Their children are ``schedule.child[first_child : first_child + (end - begin) * arity]``, ``arity`` for each row.
    """

    begin: int
    end: int
    kind: int
    arity: int
    first_child: int


class Level(NamedTuple):
    """The rows ``begin`` to ``end - 1``, which have the same height and run together. They read only earlier rows."""

    begin: int
    end: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """The order of computation. Rows are sorted by (height, arity, kind), so levels and segments are slices of rows.

    With shared subtrees, nodes with equal subtrees have the same row, and a row may have several parents.

    Attributes:
        num_rows, num_nodes, num_trees: numbers of rows, nodes and trees.
        levels: from the leaves (height 0) up. Bounds are plain integers, so running a schedule never waits for a
            device.
        child: int64 ``[edges]``, the rows of each row's children, row after row, children from left to right.
        row_of_node: int64 ``[nodes]``.
        row_of_root: int64 ``[trees]``.
        node_of_row: int64 ``[rows]``, the first node with this row.
        kind_of_row: int64 ``[rows]``.
        symbol: int64 ``[leaf rows]``, the leaf id of a symbol leaf, -1 for any other leaf.
        function: int64 ``[inner rows]``, index of the label into ``vocabulary.labels``; -1 if a graph does not give it.
        value: float64 ``[leaf rows]``, of a number leaf, NaN for any other leaf.
        shared: whether equal subtrees have the same row.
        here: the same on the CPU, if it was moved from there.
    """

    num_rows: int
    num_nodes: int
    num_trees: int
    levels: tuple[Level, ...]
    child: torch.Tensor
    row_of_node: torch.Tensor
    row_of_root: torch.Tensor
    node_of_row: torch.Tensor
    kind_of_row: torch.Tensor
    symbol: torch.Tensor
    function: torch.Tensor
    value: torch.Tensor
    shared: bool
    here: Schedule | None = None

    @classmethod
    def from_index(
        cls, index: SubtreeIndex, trees: NDArray[np.int64] | slice = slice(None), share_subtrees: bool = True
    ) -> Schedule:
        """The schedule of some trees of an indexed forest, whose nodes are numbered in the order of ``trees``.

        Args:
            index: the forest's subtrees.
            trees: int64 ``[trees]`` of tree numbers, or a slice of them; a tree may occur more than once.
            share_subtrees: whether nodes with equal subtrees have one row.

        Raises:
            GraphError: a tree that the forest does not have.
        """
        node, tree_end = nodes_of_trees(index.forest.begin, trees)
        number = index.number[node]
        if share_subtrees:
            distinct, row_of_number = distinct_numbers(number, index.num_distinct)
            row_of_node = row_of_number(number)
            node_of_row = np.empty(len(distinct), np.int64)
            node_of_row[row_of_node[::-1]] = np.arange(len(number) - 1, -1, -1)  # what is written last stays
            arity = index.arity[distinct]
            child = row_of_number(index.child[concatenated_ranges(index.child_pointer[distinct], arity)])
        else:
            node_of_row = stable_order(number)
            distinct = number[node_of_row]
            row_of_node = np.empty(len(number), np.int64)
            row_of_node[node_of_row] = np.arange(len(number))
            arity = index.arity[distinct]
            pointer, forest_child = index.forest.children()
            forest_node = node[node_of_row]
            moved_by = np.repeat(node_of_row - forest_node, arity)
            child = row_of_node[forest_child[concatenated_ranges(pointer[forest_node], arity)] + moved_by]
        starts = run_starts(index.segment[distinct])
        first = distinct[starts]
        levels = make_levels(len(distinct), starts, index.height[first], arity, index.kind[first])
        leaves, inner = np.split(distinct, [levels[0].end if levels else 0])
        return cls(
            num_rows=len(distinct),
            num_nodes=len(number),
            num_trees=len(tree_end),
            levels=levels,
            child=torch.from_numpy(child),
            row_of_node=torch.from_numpy(row_of_node),
            row_of_root=torch.from_numpy(row_of_node[tree_end - 1]),
            node_of_row=torch.from_numpy(node_of_row),
            kind_of_row=torch.from_numpy(index.kind[distinct]),
            symbol=torch.from_numpy(index.symbol[leaves]),
            function=torch.from_numpy(index.symbol[inner]),
            value=torch.from_numpy(index.value[leaves]),
            shared=share_subtrees,
        )

    @classmethod
    def from_edges(
        cls,
        num_nodes: int,
        source: ArrayLike,
        target: ArrayLike,
        position: ArrayLike | None = None,
        kind: ArrayLike | None = None,
        symbol: ArrayLike | None = None,
        value: ArrayLike | None = None,
        roots: ArrayLike | None = None,
        *,
        allow_several_parents: bool = False,
        name: NodeName = plain_node_name,
    ) -> Schedule:
        """The schedule of a graph whose edges run from child to parent; every node has a row of its own.

        Args:
            num_nodes: nodes are 0 to ``num_nodes - 1``.
            source, target: ``[edges]``, child and parent of every edge.
            position: ``[edges]``, the child's place among its parent's children; by default the order of the edges.
            kind: ``[nodes]``; by default 0 for leaves, and 1, 2, ... for the arities that occur, in ascending order.
            symbol: ``[nodes]``, index of the label into ``vocabulary.labels``; by default -1.
            value: ``[nodes]``, read at leaves; by default NaN.
            roots: ``[trees]``; by default the nodes without a parent, in ascending order.
            allow_several_parents: whether a node may be the child of several nodes.
            name: how messages call a node.

        Raises:
            GraphError: a cycle, a node of two parents, positions with a gap or a repetition, arrays that do not fit.
        """
        source, target = _integers("source", source), _integers("target", target)
        place = None if position is None else _integers("position", position)
        pointer, child = order_children(
            num_nodes, source, target, place, allow_several_parents=allow_several_parents, name=name
        )
        height = find_edge_heights(pointer, child, name)
        arity = np.diff(pointer)
        node_kind = _kinds_by_arity(arity) if kind is None else _checked_kinds(kind, num_nodes, name)
        root = _roots(source, num_nodes) if roots is None else _checked_roots(roots, num_nodes)
        node_symbol = np.full(num_nodes, -1) if symbol is None else _integers("symbol", symbol, num_nodes)
        node_value = np.full(num_nodes, np.nan) if value is None else _floats("value", value, num_nodes)

        key = (height * (int(arity.max(initial=0)) + 1) + arity) * (int(node_kind.max(initial=0)) + 1) + node_kind
        node_of_row = stable_order(key)
        row_of_node = np.empty(num_nodes, np.int64)
        row_of_node[node_of_row] = np.arange(num_nodes)
        row_arity = arity[node_of_row]
        row_child = row_of_node[child[concatenated_ranges(pointer[node_of_row], row_arity)]]
        starts = run_starts(key[node_of_row])
        first = node_of_row[starts]
        levels = make_levels(num_nodes, starts, height[first], row_arity, node_kind[first])
        leaves, inner = np.split(node_of_row, [levels[0].end if levels else 0])
        return cls(
            num_rows=num_nodes,
            num_nodes=num_nodes,
            num_trees=len(root),
            levels=levels,
            child=torch.from_numpy(row_child),
            row_of_node=torch.from_numpy(row_of_node),
            row_of_root=torch.from_numpy(row_of_node[root]),
            node_of_row=torch.from_numpy(node_of_row),
            kind_of_row=torch.from_numpy(node_kind[node_of_row]),
            symbol=torch.from_numpy(node_symbol[leaves]),
            function=torch.from_numpy(node_symbol[inner]),
            value=torch.from_numpy(node_value[leaves]),
            shared=False,
        )

    @classmethod
    def from_steps(
        cls, num_leaves: int, sizes: Sequence[int], child: torch.Tensor, row_of_root: torch.Tensor
    ) -> Schedule:
        """The schedule of leaves, and of rows with two children that were chosen step by step.

        The children may be on a device that the host does not wait for: levels are the steps, and only the device knows
        who reads whom. Every node has a row of its own, of the same number.

        Args:
            num_leaves: rows 0 to ``num_leaves - 1`` have no children.
            sizes: how many rows come with each step, at least 1.
            child: int64 ``[edges]``, rows of earlier steps; the two of each row follow each other.
            row_of_root: int64 ``[trees]``, where ``child`` is.
        """
        ends = [num_leaves, *(num_leaves + total for total in accumulate(sizes))]
        levels = [Level(0, num_leaves, (Segment(0, num_leaves, 0, 0, 0),))]
        for begin, end in pairwise(ends):
            levels.append(Level(begin, end, (Segment(begin, end, 1, 2, 2 * (begin - num_leaves)),)))
        row = torch.arange(ends[-1], device=child.device)
        leaves, inner = row.split([num_leaves, ends[-1] - num_leaves])
        return cls(
            num_rows=ends[-1],
            num_nodes=ends[-1],
            num_trees=len(row_of_root),
            levels=tuple(levels),
            child=child,
            row_of_node=row,
            row_of_root=row_of_root,
            node_of_row=row,
            kind_of_row=(row >= num_leaves).long(),
            symbol=torch.full_like(leaves, -1),
            function=torch.full_like(inner, -1),
            value=torch.full_like(leaves, torch.nan, dtype=torch.float64),
            shared=False,
        )

    @property
    def is_known_to_host(self) -> bool:
        """Whether the host knows the children without waiting for a device."""
        return self.here is not None or self.device.type == "cpu"

    @property
    def num_leaf_rows(self) -> int:
        """Number of rows of leaves; they come first."""
        return self.levels[0].end if self.levels else 0

    @property
    def leaf_segments(self) -> tuple[Segment, ...]:
        """The segments of leaves."""
        return self.levels[0].segments if self.levels else ()

    @property
    def arity_of_row(self) -> NDArray[np.int64]:
        """How many children each row has, int64 ``[rows]``."""
        segments = [segment for level in self.levels for segment in level.segments]
        arities = np.array([segment.arity for segment in segments], np.int64)
        sizes = np.array([segment.end - segment.begin for segment in segments], np.int64)
        return np.repeat(arities, sizes)

    @property
    def device(self) -> torch.device:
        """Where the index tensors are."""
        return self.child.device

    def to(self, device: torch.device | str) -> Schedule:
        """This schedule with its tensors on ``device``; from the CPU to CUDA in one copy, without waiting."""
        device = torch.device(device)
        if device.type == "cpu" and self.is_known_to_host:
            return self if self.here is None else self.here
        here = self if self.device.type == "cpu" else self.here
        return self._with_tensors(partial(to_device_together, device=device), here)

    def pin_memory(self) -> Schedule:
        """This schedule of the CPU with its tensors in one buffer of pinned memory."""
        return self._with_tensors(pinned_together, None)

    def _with_tensors(
        self, moved: Callable[[list[torch.Tensor]], list[torch.Tensor]], here: Schedule | None
    ) -> Schedule:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
        return replace(self, **dict(zip(tensors, moved(list(tensors.values())), strict=True)), here=here)  # type: ignore[arg-type]

    def child_of_rows(self) -> NDArray[np.int64]:
        """``child`` for the host; it waits for the device only if the schedule was made there."""
        return self.to("cpu").child.numpy()

    def __repr__(self) -> str:
        return (
            f"<Schedule of {self.num_trees} trees, {self.num_nodes} nodes in {self.num_rows} rows, "
            f"{len(self.levels)} levels>"
        )


def nodes_of_trees(
    begin: NDArray[np.int64], trees: NDArray[np.int64] | slice
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes of the chosen trees, one tree after the other, and where each tree ends among them."""
    num_trees = len(begin) - 1
    chosen = np.arange(num_trees)[trees] if isinstance(trees, slice) else checked_integers("trees", trees, np.int64)
    outside = (chosen < 0) | (chosen >= num_trees)
    if outside.any():
        raise GraphError(f"tree {int(chosen[outside][0])} is asked for; there are {num_trees}, from 0")
    first = begin[chosen]
    count = begin[chosen + 1] - first
    return concatenated_ranges(first, count), np.cumsum(count)


def distinct_numbers(
    number: NDArray[np.int64], num_distinct: int
) -> tuple[NDArray[np.int64], Callable[[NDArray[np.int64]], NDArray[np.int64]]]:
    """The sorted distinct numbers of a batch, which are its rows, and the way from numbers to rows."""
    if len(number) * _SPARSE < num_distinct:
        in_order = np.sort(number)
        distinct = in_order[run_starts(in_order)]
        return distinct, lambda numbers: np.searchsorted(distinct, numbers)
    occurs = np.zeros(num_distinct, bool)
    occurs[number] = True
    distinct = np.flatnonzero(occurs)
    row = np.empty(num_distinct, np.int64)
    row[distinct] = np.arange(len(distinct))
    return distinct, row.__getitem__


def run_starts(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each run of equal keys starts."""
    changes = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    return np.concatenate([np.zeros(min(len(keys), 1), np.int64), changes])


def make_levels(
    num_rows: int,
    starts: NDArray[np.int64],
    height: NDArray[np.int64],
    arity: NDArray[np.int64],
    kind: NDArray[np.int64],
) -> tuple[Level, ...]:
    """Levels and segments.

    Args:
        num_rows: how many rows there are.
        starts: ``[segments]``, the first row of each segment.
        height, kind: ``[segments]``.
        arity: ``[rows]``.
    """
    first_child = (np.cumsum(arity) - arity)[starts]
    begins = starts.tolist()
    segments = list(
        map(
            Segment,
            begins,
            [*begins[1:], num_rows],
            kind.tolist(),
            arity[starts].tolist(),
            first_child.tolist(),
        )
    )
    level_starts = [*run_starts(height).tolist(), len(segments)]
    return tuple(
        Level(segments[first].begin, segments[last - 1].end, tuple(segments[first:last]))
        for first, last in pairwise(level_starts)
    )


def _kinds_by_arity(arity: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(np.unique(arity[arity > 0]), arity) + (arity > 0)


def _checked_kinds(kind: ArrayLike, num_nodes: int, name: NodeName) -> NDArray[np.int64]:
    kinds = _integers("kind", kind, num_nodes)
    if (kinds < 0).any():
        raise GraphError(f"{name(int(np.argmax(kinds < 0)))} has a negative kind")
    return kinds


def _roots(source: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    return np.flatnonzero(np.bincount(source, minlength=num_nodes) == 0)


def _checked_roots(roots: ArrayLike, num_nodes: int) -> NDArray[np.int64]:
    root = _integers("roots", roots)
    outside = (root < 0) | (root >= num_nodes)
    if outside.any():
        raise GraphError(f"root {int(root[outside][0])} is none of the {num_nodes} nodes")
    return root


def _integers(name: str, array: ArrayLike, length: int | None = None) -> NDArray[np.int64]:
    given = checked_integers(name, array, np.int64)
    if length is not None and len(given) != length:
        raise GraphError(f"{name} has {len(given)} entries for {length} nodes")
    return given


def _floats(name: str, array: ArrayLike, length: int) -> NDArray[np.float64]:
    given = np.asarray(array, np.float64)
    if given.shape != (length,):
        raise GraphError(f"{name} has shape {given.shape} for {length} nodes")
    return given
