"""A schedule cut for running level by level: which rows step together, and where each kind's rows are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from treemem.schedule.schedule import Schedule, Segment

_CHUNK = 2048  # views cut at a time: a chain has a level for every node


class Group(NamedTuple):
    """The rows ``begin`` to ``end - 1`` of one level that have one arity: they take their step together.

    Attributes:
        begin, end: rows of the schedule.
        arity: of all of them.
        runs: ``(begin, end, kind)`` of each kind, counted from the group's first row.
    """

    begin: int
    end: int
    arity: int
    runs: tuple[tuple[int, int, int], ...]


class KindRows(NamedTuple):
    """All inner rows of one arity, or those of one kind among them.

    Attributes:
        kind: the kind; None for all kinds.
        rows: int64 ``[rows of the kind]``, in the schedule.
        places: int64, the same rows counted among the rows of their arity; None where these are all of them, in order.
        child: int64 ``[rows of the kind * arity]``, the rows of their children.
    """

    kind: int | None
    rows: torch.Tensor
    places: torch.Tensor | None
    child: torch.Tensor


class LevelPlan:
    """The groups of a schedule, in the order in which they run.

    Attributes:
        num_leaves: rows of level 0.
        leaf_segments: ``(begin, end, kind)`` of the leaf rows.
        groups: of all other levels.
        rows_of_arity: number of inner rows of each arity.
        largest_group: the most rows that one group of each arity has.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._child = schedule.child
        self.leaf_segments: list[tuple[int, int, int]] = []
        self.groups: list[Group] = []
        self.num_leaves = 0
        segments_of_arity: dict[int, list[Segment]] = {}
        for level in schedule.levels:
            group: list[Segment] = []
            for segment in level.segments:
                if segment.arity == 0:
                    self.leaf_segments.append((segment.begin, segment.end, segment.kind))
                    self.num_leaves = segment.end
                    continue
                if group and group[0].arity != segment.arity:
                    self.groups.append(_group(group))
                    group = []
                group.append(segment)
                segments_of_arity.setdefault(segment.arity, []).append(segment)
            if group:
                self.groups.append(_group(group))
        self._segments_of_arity = segments_of_arity
        self._kind_rows: dict[tuple[int, bool], list[KindRows]] = {}
        self.rows_of_arity = {
            arity: sum(segment.end - segment.begin for segment in segments)
            for arity, segments in segments_of_arity.items()
        }
        self.largest_group: dict[int, int] = {}
        for each in self.groups:
            self.largest_group[each.arity] = max(self.largest_group.get(each.arity, 0), each.end - each.begin)

    def kind_rows(self, arity: int, by_kind: bool = True) -> list[KindRows]:
        """The inner rows of one arity, by their kinds or all together; worked out when first asked for."""
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
        device = self._child.device
        found = []
        for each in np.unique(kind).tolist() if by_kind else [None]:
            place = np.arange(len(row)) if each is None else np.flatnonzero(kind == each)
            found.append(
                KindRows(
                    each,
                    torch.from_numpy(row[place]).to(device),
                    None if len(place) == len(row) else torch.from_numpy(place).to(device),
                    self._child[torch.from_numpy(edge[place].ravel()).to(device)],
                )
            )
        return found

    def sizes(self, arity: int | None = None, factor: int = 1) -> list[int]:
        """Number of rows of each group (of one arity, or all), times ``factor``."""
        return [(group.end - group.begin) * factor for group in self.groups if arity is None or group.arity == arity]

    def child_sizes(self) -> list[int]:
        """Number of children of each group."""
        return [(group.end - group.begin) * group.arity for group in self.groups]


def _group(segments: Sequence[Segment]) -> Group:
    begin, end = segments[0].begin, segments[-1].end
    runs = tuple((segment.begin - begin, segment.end - begin, segment.kind) for segment in segments)
    return Group(begin, end, segments[0].arity, runs)


_plans: WeakKeyDictionary[Schedule, LevelPlan] = WeakKeyDictionary()


def level_plan(schedule: Schedule) -> LevelPlan:
    """The plan of a schedule, made once."""
    plan = _plans.get(schedule)
    if plan is None:
        plan = _plans[schedule] = LevelPlan(schedule)
    return plan


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
