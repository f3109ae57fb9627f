"""A schedule cut for running level by level: which rows step together, and where each kind's rows are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import to_device_together
from treemem.schedule.schedule import GIVEN, Schedule, Segment

_CHUNK = 2048  # views cut at a time: a chain has a level for every node


class Group(NamedTuple):
    """The rows ``begin`` to ``end - 1`` of one level, all of one arity: they take their step together.

    Attributes:
        begin, end: rows of the schedule.
        arity: of all of them.
        runs: ``(begin, end, kind)`` of each kind, counted from the group's first row.
    """

    begin: int
    end: int
    arity: int
    runs: tuple[tuple[int, int, int], ...]


Selection = slice | torch.Tensor
"""Some rows: a slice where they are neighbours, else their numbers, int64."""


def selected(values: torch.Tensor, selection: Selection) -> torch.Tensor:
    """The selected rows of ``values``; neighbours are not copied."""
    return values[selection] if isinstance(selection, slice) else values.index_select(0, selection)


class KindRows(NamedTuple):
    """All rows of one arity, or those of one kind among them.

    Attributes:
        kind: the kind; None for all kinds.
        rows: in the schedule.
        places: the same rows counted among the rows of their arity.
        features: the same rows counted among the leaf rows or the inner rows, as features are.
        child: int64 ``[rows of the kind, arity]``, the rows of their children.
    """

    kind: int | None
    rows: Selection
    places: Selection
    features: Selection
    child: torch.Tensor

    def parts(self, most_rows: int) -> Iterator[KindRows]:
        """The same rows, at most so many at a time."""
        for begin in range(0, len(self.child), most_rows):
            end = min(begin + most_rows, len(self.child))
            rows, places, features = (_part(each, begin, end) for each in (self.rows, self.places, self.features))
            yield KindRows(self.kind, rows, places, features, self.child[begin:end])


def _part(selection: Selection, begin: int, end: int) -> Selection:
    if isinstance(selection, slice):
        return slice(selection.start + begin, selection.start + end)
    return selection[begin:end]


class LevelPlan:
    """The groups of a schedule, in the order in which they run.

    Args:
        schedule: the rows.
        most_rows: most rows of a group, so that a step stays in the processor's cache.
        run_leaves: whether leaf rows without given states are groups too, of arity 0.

    Attributes:
        groups: of all levels, or all but the first.
        num_leaves: number of leaf rows.
        rows_of_arity: number of rows of the groups of each arity.
    """

    def __init__(self, schedule: Schedule, most_rows: int = sys.maxsize, run_leaves: bool = False) -> None:
        self._child = schedule.child
        self.groups: list[Group] = []
        self.num_leaves = 0
        segments_of_arity: dict[int, list[Segment]] = {}
        for level in schedule.levels:
            group: list[Segment] = []
            for segment in level.segments:
                if segment.arity == 0:
                    self.num_leaves = segment.end
                    if not run_leaves or segment.kind == GIVEN:
                        continue
                if group and group[0].arity != segment.arity:
                    self.groups += _groups(group, most_rows)
                    group = []
                group.append(segment)
                segments_of_arity.setdefault(segment.arity, []).append(segment)
            if group:
                self.groups += _groups(group, most_rows)
        self._segments_of_arity = segments_of_arity
        self._kind_rows: dict[tuple[int, bool], list[KindRows]] = {}
        self.rows_of_arity = {
            arity: sum(segment.end - segment.begin for segment in segments)
            for arity, segments in segments_of_arity.items()
        }

    def kind_rows(self, arity: int, by_kind: bool = True) -> list[KindRows]:
        """The rows of one arity, by their kinds or all together; worked out when first asked for."""
        key = (arity, by_kind)
        if key not in self._kind_rows:
            self._kind_rows[key] = self._find_kind_rows(arity, by_kind)
        return self._kind_rows[key]

    def _find_kind_rows(self, arity: int, by_kind: bool) -> list[KindRows]:
        segments = self._segments_of_arity[arity]
        bounds = np.array([segment[:3] for segment in segments], np.int64)
        begin, sizes, kinds = bounds[:, 0], bounds[:, 1] - bounds[:, 0], bounds[:, 2]
        first_child = np.array([segment.first_child for segment in segments], np.int64)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row = np.repeat(begin, sizes) + within
        edge = (np.repeat(first_child, sizes) + within * arity)[:, None] + np.arange(arity)
        kind = np.repeat(kinds, sizes)
        found: list[tuple[int | None, list[Selection], torch.Tensor]] = []
        for kind_of_rows in np.unique(kind).tolist() if by_kind else [None]:
            place = np.arange(len(row)) if kind_of_rows is None else np.flatnonzero(kind == kind_of_rows)
            numbers = (row[place], place, row[place] - (self.num_leaves if arity else 0))
            found.append((kind_of_rows, [*map(_selection, numbers)], torch.from_numpy(edge[place])))
        tensors = [each for _, parts, edges in found for each in (*parts, edges) if isinstance(each, torch.Tensor)]
        moved = iter(to_device_together(tensors, self._child.device))
        kind_rows = []
        for kind_of_rows, selections, _ in found:
            rows, places, features = (each if isinstance(each, slice) else next(moved) for each in selections)
            kind_rows.append(KindRows(kind_of_rows, rows, places, features, self._child[next(moved)]))
        return kind_rows

    def sizes(self, arity: int | None = None, factor: int = 1) -> list[int]:
        """Number of rows of each group (of one arity, or all), times ``factor``."""
        return [(group.end - group.begin) * factor for group in self.groups if arity is None or group.arity == arity]

    def child_sizes(self) -> list[int]:
        """Number of children of each group."""
        return [(group.end - group.begin) * group.arity for group in self.groups]

    def rows_of_groups(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Those of ``values``, one for each row of the schedule, that belong to each group in turn."""
        leaves, inner = self._leaf_and_inner_sizes()
        yield from cut(values, leaves)
        yield from cut(values[self.num_leaves :], inner)

    def rows_of_groups_backwards(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """The same from the last group to the first; the first leaves may be missing where they are in no group."""
        leaves, inner = self._leaf_and_inner_sizes()
        yield from cut_backwards(values[len(values) - sum(inner) :], inner)
        yield from cut_backwards(values, leaves)

    def _leaf_and_inner_sizes(self) -> tuple[list[int], list[int]]:
        sizes, num_leaf_groups = self.sizes(), len(self.sizes(0))
        return sizes[:num_leaf_groups], sizes[num_leaf_groups:]


def _selection(numbers: NDArray[np.int64]) -> Selection:
    if not len(numbers) or numbers[-1] - numbers[0] == len(numbers) - 1:  # ascending
        first = int(numbers[0]) if len(numbers) else 0
        return slice(first, first + len(numbers))
    return torch.from_numpy(numbers)


def _groups(segments: Sequence[Segment], most_rows: int) -> Iterator[Group]:
    """The rows of neighbouring segments of one arity, in as few groups of about equal size as there can be."""
    first, last, arity = segments[0].begin, segments[-1].end, segments[0].arity
    size = -(-(last - first) // -(-(last - first) // most_rows))
    for begin in range(first, last, size):
        end = min(begin + size, last)
        runs = (
            (max(segment.begin, begin) - begin, min(segment.end, end) - begin, segment.kind)
            for segment in segments
            if segment.begin < end and segment.end > begin
        )
        yield Group(begin, end, arity, tuple(runs))


_plans: WeakKeyDictionary[Schedule, dict[tuple[int, bool], LevelPlan]] = WeakKeyDictionary()


def level_plan(schedule: Schedule, most_rows: int = sys.maxsize, run_leaves: bool = False) -> LevelPlan:
    """The plan of a schedule; arguments as for :class:`LevelPlan`. It is made once."""
    plans, key = _plans.setdefault(schedule, {}), (most_rows, run_leaves)
    if key not in plans:
        plans[key] = LevelPlan(schedule, *key)
    return plans[key]


def cut(rows: torch.Tensor, sizes: Sequence[int]) -> Iterator[torch.Tensor]:
    """Consecutive slices of ``rows``; many are cut at once, which costs less than one by one."""
    begin = 0
    for first in range(0, len(sizes), _CHUNK):
        chunk = list(sizes[first : first + _CHUNK])
        yield from rows.narrow(0, begin, sum(chunk)).split_with_sizes(chunk)
        begin += sum(chunk)


def cut_backwards(rows: torch.Tensor, sizes: Sequence[int]) -> Iterator[torch.Tensor]:
    """The slices of :func:`cut`, from the last to the first."""
    end = sum(sizes)
    for last in range(len(sizes), 0, -_CHUNK):
        chunk = list(sizes[max(0, last - _CHUNK) : last])
        end -= sum(chunk)
        yield from reversed(rows.narrow(0, end, sum(chunk)).split_with_sizes(chunk))
