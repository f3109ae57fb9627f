"""The baseline: level by level in plain torch under ordinary autograd, as a careful user would write it.

One product a level and kind, one pointwise step a level and arity. A level gathers its children from those levels
alone that have any, which on chains is the difference between linear and quadratic.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.problem import Problem
from benchmarks.ways import ByBatch
from treemem.device_copy import to_device, to_device_together
from treemem.engines.cell import State
from treemem.networks.trees.split_tree_cell import SplitTreeCell
from treemem.nn import TreeLayer
from treemem.schedule.schedule import Schedule, Segment
from treemem.schedule.tree_batch import TreeBatch

Weights = dict[str, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]
Source = tuple[tuple[Segment, ...], list[int], Tensor]


def level_autograd(problem: Problem) -> ByBatch:
    """The problem's own layer, run this way."""

    def encode(batch: TreeBatch, feat: Tensor | None) -> Tensor:
        hidden = hidden_by_levels(problem, batch.schedule, feat)
        if problem.examples.every_node:
            return hidden[to_device(batch.schedule.row_of_node, problem.device)]
        roots = to_device(batch.schedule.row_of_root, problem.device)
        return hidden[roots].view(len(batch), batch.trees_per_example, -1)

    return ByBatch(problem, encode)


def hidden_by_levels(problem: Problem, schedule: Schedule, feat: Tensor | None) -> Tensor:
    """``h`` of all rows, ``[rows, hidden_size]``.

    Args:
        problem: whose layer to use; its inner nodes read no features.
        schedule: the rows, on the CPU.
        feat: of the nodes, ``[nodes, input_size]``, or None.
    """
    sources, schedule = _sources(schedule, problem.device), schedule.to(problem.device)
    leaf_inputs = _leaf_inputs(problem.layer, schedule, feat)
    cell = problem.cell
    leaves = [cell.leaf(leaf_inputs[each.begin : each.end], each.kind) for each in schedule.levels[0].segments]
    levels = [_joined(leaves)]
    weights = {key: (weight.unbind(0), bias.unbind(0)) for key, (weight, bias) in cell.weights().items()}
    for segments, own_sources, place in sources:
        below = {name: _cat([levels[source][name] for source in own_sources]) for name in levels[0]}
        first_child = segments[0].first_child
        made = []
        for arity, group in groupby(segments, key=lambda segment: segment.arity):
            same = list(group)
            begin, rows = same[0].first_child - first_child, same[-1].end - same[0].begin
            child = place[begin : begin + rows * arity]
            children = {name: value[child].unflatten(0, (rows, arity)) for name, value in below.items()}
            made.append(_step(cell, weights, same, children))
        levels.append(_joined(made))
    return torch.cat([level["h"] for level in levels])


def _leaf_inputs(layer: TreeLayer, schedule: Schedule, feat: Tensor | None) -> Tensor:
    if feat is not None:
        return feat[schedule.node_of_row[: schedule.num_leaf_rows]]
    assert layer.leaves is not None
    return layer.leaves(schedule)


def _step(cell: SplitTreeCell, weights: Weights, segments: list[Segment], children: State) -> State:
    """The states of rows of one arity."""
    arity, start = segments[0].arity, segments[0].begin
    results: State = {}
    for product in cell.products(arity):
        weight, bias = weights[product.weights]
        inputs = product.inputs(children, None, results)
        copies = len(inputs) // (segments[-1].end - start)
        parts = []
        for segment in segments:
            own = inputs[(segment.begin - start) * copies : (segment.end - start) * copies]
            used = 0 if product.set_of_kind is None else product.set_of_kind[segment.kind]
            parts.append(functional.linear(own, weight[used], bias[used]))
        results[product.name] = _cat(parts)
    return cell.step(results, children)


def _sources(schedule: Schedule, device: torch.device) -> list[Source]:
    """For each level but the first its segments, the levels that its children are in, and their places there."""
    begin = np.array([level.begin for level in schedule.levels])
    sizes = np.array([level.end - level.begin for level in schedule.levels])
    child = schedule.child.numpy()
    level_of_child = np.searchsorted(begin, child, side="right") - 1
    found, first = [], 0
    for level in schedule.levels[1:]:
        last = first + sum((segment.end - segment.begin) * segment.arity for segment in level.segments)
        own = level_of_child[first:last]
        lowest = own.min()
        counts = np.bincount(own - lowest)
        sources = np.flatnonzero(counts) + lowest
        shift = np.zeros(len(counts), np.int64)
        shift[sources - lowest] = np.cumsum(sizes[sources]) - sizes[sources] - begin[sources]
        found.append((level.segments, sources.tolist(), torch.from_numpy(child[first:last] + shift[own - lowest])))
        first = last
    places = to_device_together([place for _, _, place in found], device)
    return [(segments, own, place) for (segments, own, _), place in zip(found, places, strict=True)]


def _joined(states: list[State]) -> State:
    return {name: _cat([state[name] for state in states]) for name in states[0]}


def _cat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
