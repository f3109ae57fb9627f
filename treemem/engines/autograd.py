"""Any cell, level by level, in plain autograd: any device and precision, transforms and second derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from treemem.device_copy import plain_tensors, to_device_together
from treemem.engines.cell import Cell, State, checked_state, leaf_states, runs_by
from treemem.engines.row_table import RowTable
from treemem.schedule.schedule import Level, Schedule


def run_autograd(cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None) -> State:
    """The states of all rows.

    Each level sends its rows to the levels that read them, in one part for each. So the time of the forward and of the
    backward pass is proportional to the number of edges, and nothing is written in place. If only the device knows who
    reads whom, levels write to a table of rows and read from it.

    Args:
        cell: the cell.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[rows, ...]``.

    Raises:
        CellError: states that are not what the protocol says.
    """
    leaves = leaf_states(cell, leaf_inputs, [segment[:3] for segment in schedule.leaf_segments])
    if len(schedule.levels) < 2:
        return leaves
    inputs = None if inner_inputs is None else inner_inputs.split([_size(level) for level in schedule.levels[1:]])
    maps = cell.weights_of_sets() if runs_by(cell, "forward_kinds") else None  # type: ignore[attr-defined]
    if not schedule.is_known_to_host:
        return _run_in_table(cell, maps, schedule, leaves, inputs)
    routes = _routes(schedule)
    inbox: list[dict[str, list[torch.Tensor]]] = [{name: [] for name in leaves} for _ in routes]
    by_state: dict[str, list[torch.Tensor]] = {name: [] for name in leaves}
    for height, route in enumerate(routes):
        states = leaves
        if height:
            children = {name: _selected(_joined(parts), route.order) for name, parts in inbox[height].items()}
            inbox[height] = {}
            x = None if inputs is None else inputs[height - 1]
            states = _run_level(cell, maps, schedule.levels[height], children, x, leaves)
        for name, value in states.items():
            by_state[name].append(value)
            if not route.targets:
                continue
            sent = _selected(value, route.sent)
            parts = [sent] if len(route.sizes) == 1 else sent.split(route.sizes)
            for target, part in zip(route.targets, parts, strict=True):
                inbox[target][name].append(part)
    return {name: torch.cat(parts) for name, parts in by_state.items()}


def _run_in_table(
    cell: Any, maps: Any, schedule: Schedule, leaves: State, inputs: Sequence[torch.Tensor] | None
) -> State:
    tables = {name: RowTable(schedule.num_rows, leaf[0].numel(), leaf) for name, leaf in leaves.items()}
    for number, level in enumerate(schedule.levels):
        states = leaves
        if number:
            first, last = level.segments[0], level.segments[-1]
            child = schedule.child[first.first_child : last.first_child + (last.end - last.begin) * last.arity]
            children = {name: table.read(child).unflatten(1, leaves[name].shape[1:]) for name, table in tables.items()}
            states = _run_level(cell, maps, level, children, None if inputs is None else inputs[number - 1], leaves)
        for name, value in states.items():
            tables[name].write(slice(level.begin, level.end), value.flatten(1))
    return {name: table.read(slice(None)).unflatten(1, leaves[name].shape[1:]) for name, table in tables.items()}


def _run_level(cell: Any, maps: Any, level: Level, children: State, x: torch.Tensor | None, leaves: State) -> State:
    """The states of a level's rows, from those of their children, ``[edges, ...]``."""
    parts: list[State] = []
    edge = 0
    for arity, group in groupby(level.segments, lambda segment: segment.arity):
        segments = list(group)
        for run in [[part] for part in segments] if maps is None else [segments]:
            begin, end = run[0].begin, run[-1].end
            rows = end - begin
            below = children
            if rows < _size(level):
                below = {name: value[edge : edge + rows * arity] for name, value in children.items()}
            below = {name: value.unflatten(0, (rows, arity)) for name, value in below.items()}
            own_x = None if x is None else x[begin - level.begin : end - level.begin]
            edge += rows * arity
            if maps is None:
                states = cell(below, own_x, run[0].kind)
            else:
                states = cell.forward_kinds(below, own_x, [(part.end - part.begin, part.kind) for part in run], maps)
            parts.append(checked_state(states, leaves, rows, cell, f"forward(..., {run[0].kind})"))
    return {name: _joined([part[name] for part in parts]) for name in leaves}


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _selected(rows: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
    return rows if places is None else rows.index_select(0, places)


def _size(level: Level) -> int:
    return level.end - level.begin


class _Route(NamedTuple):
    """What a level sends and receives.

    Attributes:
        sent: int64, its rows in the order in which they are sent; a row with several parents occurs several times. None
            for all rows in order.
        targets: the levels that receive them.
        sizes: how many rows go to each.
        order: int64 ``[edges]``, where each child is among the rows received. None for the order in which they come.
    """

    sent: torch.Tensor | None
    targets: list[int]
    sizes: list[int]
    order: torch.Tensor | None


_known: WeakKeyDictionary[Schedule, list[_Route]] = WeakKeyDictionary()


def _routes(schedule: Schedule) -> list[_Route]:
    """The routes of all levels; they are found once."""
    routes = _known.get(schedule)
    if routes is None:
        with plain_tensors():
            _known[schedule] = routes = _find_routes(schedule)
    return routes


def _find_routes(schedule: Schedule) -> list[_Route]:
    child = schedule.child_of_rows()
    begins = np.array([level.begin for level in schedule.levels])
    edges = [sum((part.end - part.begin) * part.arity for part in level.segments) for level in schedule.levels]
    target = np.repeat(np.arange(len(edges)), edges)
    source = np.searchsorted(begins, child, side="right") - 1
    by_source = np.lexsort((target, source))
    by_target = np.lexsort((source, target))
    first_edge = np.cumsum([0, *edges])
    place = np.empty_like(by_target)  # of each edge among those of its level, as they are received
    place[by_target] = np.arange(len(child)) - np.repeat(first_edge[:-1], edges)
    first_sent = np.searchsorted(source[by_source], np.arange(len(edges) + 1))
    routes, selections = [], []
    for height, level in enumerate(schedule.levels):
        sent_edges = by_source[first_sent[height] : first_sent[height + 1]]
        targets, sizes = np.unique(target[sent_edges], return_counts=True)
        selections += [
            _selection(child[sent_edges] - level.begin, _size(level)),
            _selection(place[first_edge[height] : first_edge[height + 1]], edges[height]),
        ]
        routes.append((targets.tolist(), sizes.tolist()))
    moved = iter(to_device_together([selection for selection in selections if selection is not None], schedule.device))
    on_device = [None if selection is None else next(moved) for selection in selections]
    return [
        _Route(sent, targets, sizes, order)
        for sent, order, (targets, sizes) in zip(on_device[::2], on_device[1::2], routes, strict=True)
    ]


def _selection(places: np.ndarray, size: int) -> torch.Tensor | None:
    """The places as a tensor; None if they are 0 to ``size - 1``, or if there are none."""
    if not len(places) or (len(places) == size and (places == np.arange(size)).all()):
        return None
    return torch.from_numpy(places.copy())  # a part of a larger array keeps it alive, and torch.export refuses it
