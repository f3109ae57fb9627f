"""The floor: the matrix products of a network alone, in the shapes in which its levels need them.

Inputs lie ready and outputs are overwritten; training adds the product for the gradient of the inputs for each level
and kind, and the one for the gradient of the weights for each kind.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.problem import Problem
from treemem.schedule.schedule import Schedule

Multiplication = tuple[Tensor, Tensor, Tensor]
"""Left, right, and where the product goes."""


class Run(NamedTuple):
    """One product of a level.

    Attributes:
        weights, used: key into the cell's weights, and which set of the stacked ones.
        begin, end: its rows among those of all products with this key.
    """

    weights: str
    used: int
    begin: int
    end: int


class Workspace:
    """Tensors by name, as large as the largest that was asked for, used by all batches."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._flat: dict[str, Tensor] = {}

    def rows(self, name: str, rows: int, width: int) -> Tensor:
        """``[rows, width]``; what is in it is of no matter."""
        if name not in self._flat or self._flat[name].numel() < rows * width:
            self._flat[name] = torch.rand(rows * width, dtype=self._like.dtype, device=self._like.device)
        return self._flat[name][: rows * width].view(rows, width)


class Products:
    """A way of running a problem (:class:`benchmarks.ways.Way`) that computes no scores."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._weights = {key: weight.detach() for key, (weight, _) in problem.cell.weights().items()}
        workspace = Workspace(next(iter(self._weights.values())))
        schedules = [step.batch.schedule for step in problem]
        for _ in range(2):  # the second time the workspace is as large as the largest batch needs it
            units = [self._multiplications(schedule, workspace) for schedule in schedules]
        self._units = cycle(units)

    def train(self) -> int:
        """All products of the next batch."""
        forward, backward = next(self._units)
        for left, right, out in (*forward, *backward):
            torch.mm(left, right, out=out)
        return self._problem.batch_size

    def score(self) -> int:
        """The products of the next batch that scores need."""
        for left, right, out in next(self._units)[0]:
            torch.mm(left, right, out=out)
        return self._problem.batch_size

    def outcome(self) -> None:
        """There is none."""

    def _multiplications(
        self, schedule: Schedule, workspace: Workspace
    ) -> tuple[list[Multiplication], list[Multiplication]]:
        """Those of the forward and those of the backward pass."""
        forward: list[Multiplication] = []
        backward: list[Multiplication] = []
        self._of_leaves(schedule.num_leaf_rows, workspace, forward, backward)
        rows_of_set: defaultdict[tuple[str, int], int] = defaultdict(int)
        runs = _runs(self._problem, schedule)
        totals = {run.weights: run.end for run in runs}
        for key, used, begin, end in runs:
            total = totals[key]
            weight = self._weights[key][used]
            outputs, inputs = weight.shape
            rows = slice(begin, end)
            read = workspace.rows(f"inputs {key}", total, inputs)[rows]
            forward.append((read, weight.t(), workspace.rows(f"outputs {key}", total, outputs)[rows]))
            gradient = workspace.rows(f"gradients {key}", total, outputs)[rows]
            backward.append((gradient, weight, workspace.rows("input gradients", end - begin, inputs)))
            rows_of_set[key, used] += end - begin
        backward.reverse()
        for (key, used), count in rows_of_set.items():
            outputs, inputs = self._weights[key][used].shape
            gradient = workspace.rows(f"gradients {key}", count, outputs)
            read = workspace.rows(f"inputs {key}", count, inputs)
            backward.append((gradient.t(), read, workspace.rows("weight gradients", outputs, inputs)))
        return forward, backward

    def _of_leaves(
        self, rows: int, workspace: Workspace, forward: list[Multiplication], backward: list[Multiplication]
    ) -> None:
        """The map of what the leaves read; of features nobody needs the gradient, of learned vectors somebody does."""
        leaf_map = getattr(self._problem.cell, "leaf_map", None)
        if leaf_map is None:
            return
        weight = leaf_map.weight.detach()[0]
        outputs, inputs = weight.shape
        read = workspace.rows("inputs leaves", rows, inputs)
        forward.append((read, weight.t(), workspace.rows("outputs leaves", rows, outputs)))
        gradient = workspace.rows("gradients leaves", rows, outputs)
        backward.append((gradient.t(), read, workspace.rows("weight gradients", outputs, inputs)))
        if self._problem.layer.leaves is not None:
            backward.append((gradient, weight, workspace.rows("input gradients", rows, inputs)))


@cache
def rows_of_a_node(cell: Any, arity: int, kind: int) -> dict[str, int]:
    """Return how many rows each product of a node multiplies, by name."""
    like = next(cell.parameters())
    with torch.no_grad():
        leaf = cell.leaf(like.new_zeros(1, cell.hidden_size if cell.input_size is None else cell.input_size), 0)
        children = {name: value[:, None].expand(1, arity, *value.shape[1:]) for name, value in leaf.items()}
        x = None if cell.node_input_size is None else like.new_zeros(1, cell.node_input_size)
        return {name: len(rows) for name, rows in cell.products_of(children, x, kind).items()}


def _runs(problem: Problem, schedule: Schedule) -> list[Run]:
    """Every product of the inner levels, from the lowest up."""
    cell = problem.cell
    runs: list[Run] = []
    done: defaultdict[str, int] = defaultdict(int)
    for level in schedule.levels[1:]:
        of_level: dict[tuple[str, int], Run] = {}
        for segment in level.segments:
            for product in cell.products(segment.arity):
                used = 0 if product.set_of_kind is None else product.set_of_kind[segment.kind]
                rows = (segment.end - segment.begin) * rows_of_a_node(cell, segment.arity, segment.kind)[product.name]
                begin = done[product.weights]
                done[product.weights] = begin + rows
                key = product.weights, used
                before = of_level.get(key)  # kinds that share their parameters are one product
                of_level[key] = Run(*key, begin if before is None else before.begin, begin + rows)
        runs += of_level.values()
    return runs
