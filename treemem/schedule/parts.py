"""A schedule cut into parts that run one after the other, each from what few rows of earlier parts it reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.schedule.schedule import GIVEN, Schedule, make_levels, run_starts
from treemem.trees.postorder import concatenated_ranges


class Part(NamedTuple):
    """Some inner rows of a schedule, the leaves that they read, and the rows of earlier parts that they read.

    Attributes:
        schedule: the leaves, then the given rows, as a segment of level 0 of the kind ``GIVEN``, then the inner rows.
            Nodes are those of the whole batch; ``row_of_node`` and ``row_of_root`` are empty.
        given: ``(part, places)`` of the given rows, in order: the number of an earlier part, and int64 places among the
            rows that it hands on.
        handed_on: int64, rows of ``schedule`` that later parts read or that are roots.
    """

    schedule: Schedule
    given: tuple[tuple[int, torch.Tensor], ...]
    handed_on: torch.Tensor


class Parts(NamedTuple):
    """All parts, and int64 ``[trees]``, where each root is among all the rows handed on, part after part."""

    parts: list[Part]
    place_of_root: torch.Tensor


def cut_schedule(schedule: Schedule, rows_at_once: int) -> Parts:
    """Cut a schedule into parts of ``rows_at_once`` inner rows.

    Rows are taken in the order of their nodes. Trees in post-order are so cut into whole subtrees, and a part hands on
    no more rows than the trees are high, times their arity: far fewer than if levels were cut from one another. Where
    children do not come before their parents, as in a graph made elsewhere, rows are taken level by level.
    """
    schedule = schedule.to("cpu")
    rows = _Rows(schedule)
    inner = np.arange(rows.num_leaves, schedule.num_rows)
    node = schedule.node_of_row.numpy()
    in_order = bool((node[rows.child] < np.repeat(node, rows.arity)).all())
    key = node if in_order else np.arange(schedule.num_rows)
    ordered = inner[np.argsort(key[inner], kind="stable")]
    part = np.empty(schedule.num_rows, np.int64)
    part[ordered] = np.arange(len(ordered)) // rows_at_once
    num_parts = max(1, -(-len(ordered) // rows_at_once))
    leaf = np.arange(rows.num_leaves)
    part[leaf] = np.minimum(np.searchsorted(key[ordered], key[leaf]) // rows_at_once, num_parts - 1)

    root = schedule.row_of_root.numpy()
    is_root = np.zeros(schedule.num_rows, bool)
    is_root[root] = True
    handed_on = is_root.copy()
    crossing = (part[rows.child] != np.repeat(part, rows.arity)) & (rows.child >= rows.num_leaves)
    handed_on[rows.child[crossing]] = True
    by_part = np.flatnonzero(handed_on)
    by_part = by_part[np.argsort(part[by_part], kind="stable")]
    counts = np.bincount(part[by_part], minlength=num_parts)
    first = np.cumsum(counts) - counts
    place = np.empty(schedule.num_rows, np.int64)
    place[by_part] = np.arange(len(by_part))

    inner_by_part = inner[np.argsort(part[inner], kind="stable")]
    own_parts = np.split(inner_by_part, np.cumsum(np.bincount(part[inner], minlength=num_parts))[:-1])
    root_leaf = leaf[is_root[: rows.num_leaves]]
    made = []
    for number, own_rows in enumerate(own_parts):
        children = np.unique(rows.child[concatenated_ranges(rows.pointer[own_rows], rows.arity[own_rows])])
        leaves = np.union1d(children[children < rows.num_leaves], root_leaf[part[root_leaf] == number])
        given = children[(children >= rows.num_leaves) & (part[children] != number)]
        given = given[np.argsort(part[given], kind="stable")]
        sources = tuple(
            (int(source), torch.from_numpy(place[given[part[given] == source]] - first[source]))
            for source in np.unique(part[given])
        )
        part_schedule, local = rows.schedule_of(leaves, given, own_rows)
        wanted_rows = local[by_part[first[number] : first[number] + counts[number]]]
        made.append(Part(part_schedule, sources, torch.from_numpy(wanted_rows)))
    return Parts(made, torch.from_numpy(place[root]))


class _Rows:
    """What the rows of a schedule are, as arrays over all rows."""

    def __init__(self, schedule: Schedule) -> None:
        segments = [segment for level in schedule.levels for segment in level.segments]
        sizes = np.array([segment.end - segment.begin for segment in segments], np.int64)
        self._schedule = schedule
        self.num_leaves = schedule.num_leaf_rows
        self.arity = schedule.arity_of_row
        self.pointer = np.cumsum(self.arity) - self.arity
        self.child = schedule.child.numpy()
        self._segment = np.repeat(np.arange(len(segments)), sizes)
        level_sizes = np.array([level.end - level.begin for level in schedule.levels], np.int64)
        self._height = np.repeat(np.arange(len(level_sizes)), level_sizes)
        self._kind = schedule.kind_of_row.numpy()
        self._node = schedule.node_of_row.numpy()
        self._symbol, self._function, self._value = schedule.symbol, schedule.function, schedule.value
        self._local = np.empty(schedule.num_rows, np.int64)

    def schedule_of(
        self, leaves: NDArray[np.int64], given: NDArray[np.int64], inner: NDArray[np.int64]
    ) -> tuple[Schedule, NDArray[np.int64]]:
        """The schedule of some rows, and the way from rows of the whole to its rows, valid until the next call."""
        row = np.concatenate([leaves, given, inner])
        of_given = slice(len(leaves), len(leaves) + len(given))
        self._local[row] = np.arange(len(row))
        segment, height, arity, kind = (array[row] for array in (self._segment, self._height, self.arity, self._kind))
        segment[of_given], height[of_given], arity[of_given], kind[of_given] = -1, 0, 0, GIVEN
        starts = run_starts(segment)
        child = self._local[self.child[concatenated_ranges(self.pointer[inner], self.arity[inner])]]
        leaf = torch.from_numpy(leaves)
        schedule = Schedule(
            num_rows=len(row),
            num_nodes=self._schedule.num_nodes,
            num_trees=0,
            levels=make_levels(len(row), starts, height[starts], arity, kind[starts]),
            child=torch.from_numpy(child),
            row_of_node=torch.empty(0, dtype=torch.int64),
            row_of_root=torch.empty(0, dtype=torch.int64),
            node_of_row=torch.from_numpy(self._node[row]),
            kind_of_row=torch.from_numpy(kind),
            symbol=self._symbol[leaf],
            function=self._function[torch.from_numpy(inner - self.num_leaves)],
            value=self._value[leaf],
            shared=self._schedule.shared,
        )
        return schedule, self._local
