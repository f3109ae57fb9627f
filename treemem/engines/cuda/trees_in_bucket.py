"""Batches of trees for CUDA graphs: what kernels read of a batch, in tables of the sizes of its bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import StaticTensors, plain_tensors, to_device
from treemem.engines.cuda.plan import (
    COLUMNS,
    Layout,
    Plan,
    ProductLayout,
    most_leaf_parts,
    most_parts,
    parents_of,
    tables_of,
)
from treemem.errors import RecipeError
from treemem.schedule.padded import ROWS_OF_TILE, BatchSizes, first_repeated, padded_schedule, sizes_of
from treemem.schedule.schedule import Level, Schedule, Segment
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.vocabulary import Vocabulary


class TreesInBucket(NamedTuple):
    """A batch of trees as :class:`treemem.ops.CapturedStep` hands it to a step; tree layers read it by ``in_bucket``.

    Attributes:
        schedule: of the padded batch, where the layer is.
        vocabulary: the labels.
        trees_per_example: how many trees make an example.
        feat: features of the nodes, or None.
    """

    schedule: Schedule
    vocabulary: Vocabulary | None
    trees_per_example: int
    feat: torch.Tensor | None

    @property
    def num_examples(self) -> int:
        """Number of examples, with added ones."""
        return self.schedule.num_trees // self.trees_per_example


class PaddedTrees:
    """A batch of trees, padded to the sizes of its bucket, on the CPU.

    Args:
        batch: the trees.
        examples: the number of examples is padded to a multiple of it.

    Attributes:
        sizes: of the bucket.
        tensors: what a graph reads of the batch.
    """

    def __init__(self, batch: TreeBatch, examples: int) -> None:
        schedule, parts = batch.schedule.to("cpu"), batch.trees_per_example
        padded = -(-batch.num_examples // examples) * examples
        self.sizes = sizes = sizes_of(schedule, batch.vocabulary, padded * parts)
        self._here = here = padded_schedule(schedule, sizes, parts)
        self._vocabulary, self._parts = batch.vocabulary, parts
        self._feat = None if batch.feat is None else first_repeated(batch.feat.detach(), sizes.nodes)
        self.tensors = [
            torch.cat([here.child, here.child.new_zeros(sizes.num_edges - len(here.child))]),
            here.row_of_node,
            here.row_of_root,
            first_repeated(here.node_of_row, sizes.num_leaves + sizes.num_inner),
            here.symbol,
            first_repeated(here.function, sizes.num_inner),
            here.value,
            *([] if self._feat is None else [self._feat]),
        ]

    @property
    def key(self) -> Hashable:
        """What batches of a bucket have in common, beside the shape of features."""
        return self.sizes, self._vocabulary, self._parts

    def on(self, device: torch.device) -> TreesInBucket:
        """Return the batch on a device, whose levels are as large as they are."""
        feat = None if self._feat is None else to_device(self._feat, device)
        return TreesInBucket(self._here.to(device), self._vocabulary, self._parts, feat)

    def given(self, tensors: Sequence[torch.Tensor], plans: BucketPlans) -> TreesInBucket:
        """Return the batch for a graph: what runs depends on nothing but its :attr:`key`.

        Args:
            tensors: as of :attr:`tensors`, on the device.
            plans: of the bucket, which are filled in.
        """
        child, row_of_node, row_of_root, node_of_row, symbol, function, value, *feat = tensors
        sizes, num_leaves = self.sizes, self.sizes.num_leaves
        inner = tuple(Segment(num_leaves, num_leaves, kind, arity, 0) for arity, kind in sizes.kinds)
        schedule = BucketSchedule(
            num_rows=num_leaves + sizes.num_inner,
            num_nodes=sizes.nodes,
            num_trees=sizes.trees,
            levels=(sizes.leaf_level, *([Level(num_leaves, num_leaves, inner)] if inner else [])),
            child=child,
            row_of_node=row_of_node,
            row_of_root=row_of_root,
            node_of_row=node_of_row,
            kind_of_row=child[:0],
            symbol=symbol,
            function=function,
            value=value,
            shared=sizes.shared,
            here=self._here,
            plans=plans,
        )
        plans.fill(self._here)
        return TreesInBucket(schedule, self._vocabulary, self._parts, feat[0] if feat else None)


@dataclass(frozen=True, eq=False, repr=False)
class BucketSchedule(Schedule):
    """The schedule of all batches of a bucket.

    Its levels say which arities and kinds there are; only the device knows which rows have them.

    Attributes:
        plans: what the kernels read.
    """

    plans: BucketPlans = field(kw_only=True)


class BucketPlans:
    """The plans of a bucket, one for each layout of rows, which are filled in for each batch.

    Args:
        sizes: of the bucket.
        device: where the tables are.
    """

    def __init__(self, sizes: BatchSizes, device: torch.device) -> None:
        self._sizes, self._device = sizes, device
        self._here: Schedule | None = None
        self._is_complete = False
        self._plans: dict[Layout, tuple[StaticTensors, Plan]] = {}

    def fill(self, here: Schedule) -> None:
        """Fill in the tables of a batch, whose schedule is on the CPU."""
        self._is_complete = self._here is not None
        self._here = here
        for layout, (tables, _) in self._plans.items():
            tables.fill(self._tables(layout))

    def of(self, layout: Layout) -> Plan:
        """Return the plan of the rows in a layout.

        Raises:
            RecipeError: the first batch has not asked for it, so a graph would repeat the tables of this batch.
        """
        if layout not in self._plans:
            if self._is_complete:
                raise RecipeError(
                    "this step runs other layers over its trees than before; run it with enabled=False, or train "
                    "without cuda_graphs"
                )
            with plain_tensors():
                tables = StaticTensors(self._tables(layout), self._device)
            self._plans[layout] = tables, self._plan(layout, tables.tensors)
        return self._plans[layout][1]

    def _plan(self, layout: Layout, tensors: Sequence[torch.Tensor]) -> Plan:
        sizes, room = self._sizes, _Room.of(self._sizes, layout)
        rows = dict(sizes.inner)
        made = {arity: (rows[arity], products) for arity, products in layout.products}
        numbers = [
            (count * product.copies * product.outputs, count * product.copies * product.inputs)
            for count, products in made.values()
            for product in products
        ]
        ends = np.cumsum(room.tiles)
        tiles, jobs, parent_begin, parent_edge, part_begin, leaf_begin = tensors
        return Plan(
            levels=list(zip((ends - room.tiles).tolist(), room.tiles.tolist(), strict=True)),
            rows=rows,
            num_products=sum(results for results, _ in numbers),
            num_inputs=sum(inputs for _, inputs in numbers),
            num_parts=room.parts,
            tiles=tiles,
            jobs=jobs,
            parent_begin=parent_begin,
            parent_edge=parent_edge,
            part_begin=part_begin,
            leaf_begin=leaf_begin,
            is_padded=True,
        )

    def _tables(self, layout: Layout) -> list[torch.Tensor]:
        """The tables of the batch. What is added has no rows: programs with such tiles and jobs do nothing."""
        assert self._here is not None
        sizes, here, room = self._sizes, self._here, _Room.of(self._sizes, layout)
        made = tables_of(here, layout, dict(sizes.inner))
        parents = parents_of(here, made.tiles)
        made.tiles[:, 4] = parents.most
        tiles = np.zeros((room.tiles.sum(), made.tiles.shape[1]), np.int64)
        begin, ends = 0, np.cumsum(made.num_tiles)
        for first, end in zip(np.cumsum(room.tiles) - room.tiles, ends, strict=False):
            tiles[first : first + end - begin], begin = made.tiles[begin:end], end
        jobs = np.zeros((room.jobs, made.jobs.shape[1]), np.int64)
        jobs[: len(made.jobs)] = made.jobs
        part_begin, leaf_begin = parents.part_begin, parents.leaf_begin
        if part_begin is None:
            part_begin, leaf_begin = leaf_begin, torch.arange(len(leaf_begin))
        edge = parents.edge
        return [
            torch.from_numpy(tiles),
            torch.from_numpy(jobs),
            _last_repeated(parents.begin, sizes.num_leaves + sizes.num_inner + 1),
            torch.cat([edge, edge.new_zeros(sizes.num_edges - len(edge))]),
            _last_repeated(part_begin, room.leaf_parts + 1),
            leaf_begin,
        ]


class _Room(NamedTuple):
    """For how much the tables of a bucket have room, in a layout.

    Attributes:
        tiles: of each level.
        jobs: that compute the gradients of weights.
        parts: that the gradient of a weight is the sum of.
        leaf_parts: that the gradients of all leaves are the sums of.
    """

    tiles: NDArray[np.int64]
    jobs: int
    parts: int
    leaf_parts: int

    @classmethod
    def of(cls, sizes: BatchSizes, layout: Layout) -> _Room:
        jobs, rows = 0, dict(sizes.inner)
        parts: Counter[int] = Counter()  # by where the gradient of the bias is
        for arity, products in layout.products:
            kinds = np.array([kind for of_arity, kind in sizes.kinds if of_arity == arity])
            kinds = kinds[np.lexsort([kinds, *(product.set_of(kinds) for product in reversed(products))])]
            for product in products:
                runs = _runs(product, kinds)
                blocks = -(-product.outputs // COLUMNS) * max(1, -(-product.inputs // COLUMNS))
                jobs += blocks * most_parts(runs.total(), rows[arity])
                for used, count in runs.items():
                    parts[product.bias + used * product.outputs] += most_parts(count, rows[arity])
        return cls(
            tiles=np.array(sizes.tiles) * -(-ROWS_OF_TILE // layout.rows_of_tile),
            jobs=jobs,
            parts=max(parts.values(), default=1),
            leaf_parts=most_leaf_parts(sizes.num_leaves, sizes.num_edges),
        )


def _runs(product: ProductLayout, kinds: NDArray[np.int64]) -> Counter[int]:
    """In how many pieces the rows of each set of weights lie at most."""
    used = product.set_of(kinds)
    return Counter(used[np.flatnonzero(np.diff(used, prepend=-1))].tolist())


def _last_repeated(begins: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat([begins, begins[-1:].expand(size - len(begins))])
