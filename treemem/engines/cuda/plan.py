"""What the kernels read of a batch: tables of tiles, parents and gradients, made on the CPU by whole-array steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import plain_tensors, to_device, to_device_together
from treemem.engines.printer.triton_layout import PRODUCT_FIELDS, ROW_FIELDS
from treemem.schedule.schedule import Schedule

Integers = NDArray[np.int64]
COLUMNS = 32
"""Width and height of the part of a weight's gradient that a program computes."""
_FEWEST_ROWS = 1024  # that a program adds up for the gradient of a weight
_MOST_PARTS = 8  # into which these sums are cut
_FEWEST_EDGES = 32  # that a program adds up for the gradient of a leaf


class ProductLayout(NamedTuple):
    """A product of the rows of an arity.

    Attributes:
        copies: rows of inputs a node.
        outputs, inputs: numbers of such a row.
        sets: which set of weights each kind uses, ``(kind, set)``; None if all use the first.
        weight, bias: where the weights and biases of the sets begin among all weights.
    """

    copies: int
    outputs: int
    inputs: int
    sets: tuple[tuple[int, int], ...] | None
    weight: int
    bias: int

    def set_of(self, kind: Integers) -> Integers:
        """The set of each kind."""
        table = np.zeros(int(kind.max(initial=0)) + 1, np.int64)
        for of_kind, used in self.sets or ():
            table[of_kind : of_kind + 1] = used
        return table[kind]


class Layout(NamedTuple):
    """How the rows of all arities lie in memory.

    Attributes:
        products: of each arity, in ascending order of arities.
        factors: how many factors of dropouts a row has, by arity.
        num_weights: how many numbers all weights have.
        rows_of_tile: how many rows a tile has.
    """

    products: tuple[tuple[int, tuple[ProductLayout, ...]], ...]
    factors: tuple[tuple[int, int], ...]
    num_weights: int
    rows_of_tile: int


class Plan(NamedTuple):
    """What the kernels read of a schedule.

    Attributes:
        levels: the first tile, and the number of tiles, of each level of inner rows, from the lowest up.
        rows: number of rows by arity.
        num_products, num_inputs: how many numbers the results and the inputs of all products are.
        num_parts: how many parts the gradient of a weight is the sum of.
        tiles: int64 ``[tiles, fields]``.
        jobs: int64 ``[jobs, 9]``; see :func:`treemem.engines.cuda.kernels.weight_gradients`.
        parent_begin, parent_edge: the edges to the parents of a row, int64 ``[rows + 1]`` and ``[edges]``.
        part_begin: the edges to the parents of leaves in parts, int64 ``[parts + 1]``; None: a leaf has one part.
        leaf_begin: the parts of each leaf, int64 ``[leaf rows + 1]``.
        is_padded: whether there are rows that no tile has.
    """

    levels: list[tuple[int, int]]
    rows: dict[int, int]
    num_products: int
    num_inputs: int
    num_parts: int
    tiles: torch.Tensor
    jobs: torch.Tensor
    parent_begin: torch.Tensor
    parent_edge: torch.Tensor
    part_begin: torch.Tensor | None
    leaf_begin: torch.Tensor
    is_padded: bool = False


_known: WeakKeyDictionary[Schedule, dict[Hashable, Plan]] = WeakKeyDictionary()


def plan_of(schedule: Schedule, layout: Layout) -> Plan:
    """Return the plan of a schedule, which is made once."""
    plans = _known.setdefault(schedule, {})
    if layout not in plans:
        with plain_tensors():
            plans[layout] = _make_plan(schedule, layout)
    return plans[layout]


class _Segments(NamedTuple):
    """The segments of inner rows, in the order of their rows, and the place of each among the rows of its arity.

    Rows of an arity have places kind by kind, so that all rows of a set of weights follow each other.
    """

    begin: Integers
    end: Integers
    kind: Integers
    arity: Integers
    edge: Integers
    place: Integers

    @classmethod
    def of(cls, schedule: Schedule, layout: Layout) -> _Segments:
        segments = [segment for level in schedule.levels[1:] for segment in level.segments]
        begin, end, kind, arity, edge = np.array(segments, np.int64).reshape(-1, 5).T
        place = np.zeros_like(begin)
        for of_arity, products in layout.products:
            at = np.flatnonzero(arity == of_arity)
            sets = [product.set_of(kind[at]) for product in products]
            order = at[np.lexsort((begin[at], kind[at], *reversed(sets)))]
            place[order] = _starts(end[order] - begin[order])
        return cls(begin, end, kind, arity, edge, place)


class Tables(NamedTuple):
    """What a plan is made of, on the CPU.

    Attributes:
        num_tiles: of each level of inner rows.
        tiles, jobs: see :class:`Plan`.
        num_products, num_inputs, num_parts: see :class:`Plan`.
    """

    num_tiles: Integers
    tiles: Integers
    jobs: Integers
    num_products: int
    num_inputs: int
    num_parts: int


def tables_of(schedule: Schedule, layout: Layout, rows: Mapping[int, int]) -> Tables:
    """Return the tables of a schedule but those of parents.

    Args:
        schedule: the rows.
        layout: how they lie in memory.
        rows: for how many rows of each arity there is room.
    """
    segments = _Segments.of(schedule, layout)
    results, inputs, factors = _begins(layout, rows)
    num_leaves = schedule.num_leaf_rows

    most = layout.rows_of_tile
    of_segment = -(-(segments.end - segments.begin) // most)
    segment = np.repeat(np.arange(len(of_segment)), of_segment)
    skipped = (np.arange(len(segment)) - np.repeat(_starts(of_segment), of_segment)) * most  # rows of the segment
    begin, arity = segments.begin[segment] + skipped, segments.arity[segment]
    tiles = np.zeros((len(segment), _num_fields(layout)), np.int64)
    tiles[:, 0], tiles[:, 1], tiles[:, 2] = arity, begin, np.minimum(segments.end[segment] - begin, most)
    tiles[:, 3] = segments.edge[segment] + skipped * arity
    tiles[:, 5] = begin - num_leaves
    place = segments.place[segment] + skipped
    for (of_arity, products), (_, num_factors) in zip(layout.products, layout.factors, strict=True):
        at = arity == of_arity
        tiles[at, 6] = factors[of_arity] + place[at] * num_factors
        kind = segments.kind[segment[at]]
        for number, product in enumerate(products):
            used, first = product.set_of(kind), len(ROW_FIELDS) + number * len(PRODUCT_FIELDS)
            tiles[at, first] = results[of_arity, number] + place[at] * product.copies * product.outputs
            tiles[at, first + 1] = inputs[of_arity, number] + place[at] * product.copies * product.inputs
            tiles[at, first + 2] = product.weight + used * product.outputs * product.inputs
            tiles[at, first + 3] = product.bias + used * product.outputs

    of_levels = [len(level.segments) for level in schedule.levels[1:]]
    num_tiles = np.add.reduceat(of_segment, _starts(np.array(of_levels)))
    jobs, num_parts = _jobs(segments, layout, results, inputs)
    return Tables(num_tiles, tiles, jobs, results[-1, -1], inputs[-1, -1], num_parts)


def _make_plan(schedule: Schedule, layout: Layout) -> Plan:
    rows = rows_of_arities(schedule, layout)
    made = tables_of(schedule, layout, rows)
    parents = (parents_of if schedule.is_known_to_host else _parents_there)(schedule, made.tiles)
    if schedule.is_known_to_host:
        made.tiles[:, 4] = parents.most
    tables = [torch.from_numpy(made.tiles), torch.from_numpy(made.jobs), *parents[1:4]]
    tables += [] if parents.part_begin is None else [parents.part_begin]
    moved = to_device_together(tables, schedule.device)
    parent_begin, parent_edge, leaf_begin, *part_begin = moved[2:]
    if not schedule.is_known_to_host:
        moved[0][:, 4] = parents.most
    return Plan(
        levels=list(zip(_starts(made.num_tiles).tolist(), made.num_tiles.tolist(), strict=True)),
        rows=rows,
        num_products=made.num_products,
        num_inputs=made.num_inputs,
        num_parts=made.num_parts,
        tiles=moved[0],
        jobs=moved[1],
        parent_begin=parent_begin,
        parent_edge=parent_edge,
        part_begin=part_begin[0] if part_begin else None,
        leaf_begin=leaf_begin,
    )


def rows_of_arities(schedule: Schedule, layout: Layout) -> dict[int, int]:
    """Return how many rows of each arity of a layout there are."""
    segments = [segment for level in schedule.levels[1:] for segment in level.segments]
    begin, end, _, arity, _ = np.array(segments, np.int64).reshape(-1, 5).T
    return {of_arity: int((end - begin)[arity == of_arity].sum()) for of_arity, _ in layout.products}


class Parents(NamedTuple):
    """Who reads whom; see :class:`Plan`. ``most``: the most parents of a row of each tile, int64 ``[tiles]``."""

    most: torch.Tensor
    begin: torch.Tensor
    edge: torch.Tensor
    leaf_begin: torch.Tensor
    part_begin: torch.Tensor | None


def parents_of(schedule: Schedule, tiles: Integers) -> Parents:
    """Return the parents of all rows of a schedule that the host knows."""
    child, num_leaves = schedule.child_of_rows(), schedule.num_leaf_rows
    count = np.bincount(child, minlength=schedule.num_rows)
    begin = np.concatenate([[0], np.cumsum(count)])
    part_begin, leaf_begin = _leaf_parts(begin[: num_leaves + 1])
    most = np.maximum.reduceat(count[num_leaves:], tiles[:, 1] - num_leaves)
    arrays = most, begin, np.argsort(child, kind="stable"), leaf_begin, part_begin
    return Parents(*(None if array is None else torch.from_numpy(array) for array in arrays))  # type: ignore[arg-type]


def _parents_there(schedule: Schedule, tiles: Integers) -> Parents:
    """The same without waiting for the device; leaves have one part each."""
    in_order, edge = schedule.child.sort(stable=True)
    begin = torch.searchsorted(in_order, torch.arange(schedule.num_rows + 1, device=edge.device))
    rows = np.minimum(tiles[:, 1:2] + np.arange(tiles[:, 2].max()), tiles[:, 1:2] + tiles[:, 2:3] - 1)
    most = begin.diff()[to_device(torch.from_numpy(rows), edge.device)].amax(1)
    return Parents(most, begin, edge, begin[: schedule.num_leaf_rows + 1], None)


def _num_fields(layout: Layout) -> int:
    return len(ROW_FIELDS) + len(PRODUCT_FIELDS) * max(len(products) for _, products in layout.products)


Begins = dict[tuple[int, int], int]
"""Where the rows of an arity's product begin; ``[-1, -1]``: where all end."""


def _begins(layout: Layout, rows: Mapping[int, int]) -> tuple[Begins, Begins, dict[int, int]]:
    """Where the results and inputs of each product begin, and the factors of dropouts of each arity."""
    results, inputs, factors = {}, {}, {}
    num_results = num_inputs = num_factors = 0
    for (arity, products), (_, of_row) in zip(layout.products, layout.factors, strict=True):
        factors[arity] = num_factors
        num_factors += rows[arity] * of_row
        for at, product in enumerate(products):
            results[arity, at], inputs[arity, at] = num_results, num_inputs
            num_results += rows[arity] * product.copies * product.outputs
            num_inputs += rows[arity] * product.copies * product.inputs
    results[-1, -1], inputs[-1, -1] = num_results, num_inputs
    return results, inputs, factors


def _jobs(segments: _Segments, layout: Layout, results: Begins, inputs: Begins) -> tuple[Integers, int]:
    """The jobs that compute the gradients of weights, and how many parts a gradient has at most.

    Rows of a set of weights that follow each other are a run, which is cut into parts. Jobs of the same weights add to
    different parts.
    """
    runs = [np.zeros((0, 7), np.int64)]  # of product, input, rows, outputs, inputs, weight, bias
    for arity, products in layout.products:
        at = np.flatnonzero(segments.arity == arity)
        at = at[np.argsort(segments.place[at])]
        if not len(at):
            continue
        begin, size = segments.place[at], (segments.end - segments.begin)[at]
        for number, product in enumerate(products):
            used = product.set_of(segments.kind[at])
            first = np.flatnonzero(np.concatenate([[True], used[1:] != used[:-1]]))
            rows = np.add.reduceat(size, first)
            most = max(_FEWEST_ROWS, -(-int(rows.max()) // _MOST_PARTS))
            parts = -(-rows // most)
            run = np.repeat(np.arange(len(rows)), parts)
            skipped = (np.arange(len(run)) - np.repeat(_starts(parts), parts)) * most
            place, count = begin[first][run] + skipped, np.minimum(rows[run] - skipped, most)
            copies, used = product.copies, used[first][run]
            fields = [
                results[arity, number] + place * copies * product.outputs,
                inputs[arity, number] + place * copies * product.inputs,
                count * copies,
                np.full(len(run), product.outputs),
                np.full(len(run), product.inputs),
                product.weight + used * product.outputs * product.inputs,
                product.bias + used * product.outputs,
            ]
            runs.append(np.stack(fields, 1))
    jobs = np.concatenate(runs)
    part = _numbers_within(jobs[:, 6])  # a product without inputs still has biases
    jobs[:, 5:] += (part * layout.num_weights)[:, None]
    across, down = -(-jobs[:, 3] // COLUMNS), np.maximum(1, -(-jobs[:, 4] // COLUMNS))
    jobs = np.repeat(jobs, across * down, axis=0)
    block = np.arange(len(jobs)) - np.repeat(_starts(across * down), across * down)
    down = np.repeat(down, across * down)
    return np.column_stack([jobs, block // down, block % down]), int(part.max(initial=0)) + 1


def most_parts(runs: int, rows: int) -> int:
    """Return into how many parts rows are cut at most that make so many runs, in :func:`tables_of`."""
    return min(_MOST_PARTS * runs, runs + rows // _FEWEST_ROWS)


def _numbers_within(keys: Integers) -> Integers:
    """Count each entry among those with the same key, from 0."""
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    sizes = np.diff([*first, len(keys)])
    numbers = np.empty_like(keys)
    numbers[order] = np.arange(len(keys)) - np.repeat(first, sizes)
    return numbers


def _leaf_parts(begin: Integers) -> tuple[Integers | None, Integers]:
    """Cut the edges of each leaf into parts that a program adds up: where parts begin, and the parts of each leaf."""
    edges = np.diff(begin)
    most = max(_FEWEST_EDGES, int(np.ceil(np.sqrt(edges.max(initial=0)))))
    parts = -(-edges // most)
    if parts.max(initial=0) <= 1:
        return None, begin
    leaf = np.repeat(np.arange(len(edges)), parts)
    part = np.arange(len(leaf)) - np.repeat(_starts(parts), parts)
    return np.append(begin[leaf] + part * most, begin[-1]), np.append(_starts(parts), len(leaf))


def most_leaf_parts(leaves: int, edges: int) -> int:
    """Return into how many parts the edges of all leaves are cut at most."""
    return leaves + edges // _FEWEST_EDGES


def _starts(sizes: Integers | Sequence[int]) -> Integers:
    """Where each of some things of these sizes begins."""
    ends: Integers = np.cumsum(sizes, dtype=np.int64)
    return ends - np.asarray(sizes, np.int64)
