"""Batches of trees of few sizes: schedules whose tensors are padded to the sizes of a bucket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.schedule.schedule import Level, Schedule, Segment
from treemem.trees.vocabulary import Vocabulary

ROWS_OF_TILE = 16
"""How many rows of one arity and kind a tile has at most."""
_FEWEST_ROWS = 16
_FEWEST_LEVELS = 4
_FEWEST_TILES = 32  # which a GPU takes at once


class BatchSizes(NamedTuple):
    """The sizes of the batches of a bucket, and what else they have in common.

    Attributes:
        trees, nodes: how many.
        leaves: rows of leaves of each kind, ``(kind, rows)``.
        inner: rows of inner nodes of each arity, ``(arity, rows)``.
        kinds: ``(arity, kind)`` of inner nodes.
        tiles: of inner rows, level by level; a tile has up to :data:`ROWS_OF_TILE` rows of one arity and kind.
        has_labels: whether all leaves that are not numbers, and all inner nodes, have labels.
        shared: whether equal subtrees have the same row.
    """

    trees: int
    nodes: int
    leaves: tuple[tuple[int, int], ...]
    inner: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[int, int], ...]
    tiles: tuple[int, ...]
    has_labels: tuple[bool, bool]
    shared: bool

    @property
    def num_leaves(self) -> int:
        """Rows of leaves."""
        return sum(rows for _, rows in self.leaves)

    @property
    def num_inner(self) -> int:
        """Rows of inner nodes."""
        return sum(rows for _, rows in self.inner)

    @property
    def num_edges(self) -> int:
        """Children of all rows."""
        return sum(arity * rows for arity, rows in self.inner)

    @property
    def leaf_level(self) -> Level:
        """The rows of leaves."""
        ends = list(accumulate(rows for _, rows in self.leaves))
        segments = [Segment(end - rows, end, kind, 0, 0) for end, (kind, rows) in zip(ends, self.leaves, strict=True)]
        return Level(0, self.num_leaves, tuple(segments))


def sizes_of(schedule: Schedule, vocabulary: Vocabulary | None, trees: int) -> BatchSizes:
    """Return the sizes that a batch is padded to: its own, rounded up by up to a quarter, and tiles by up to a half.

    They depend on the batch alone. All labels of the vocabulary are taken to occur, of the arities that occur.

    Args:
        schedule: of the batch, on the CPU.
        vocabulary: of the batch.
        trees: how many trees a padded batch has.
    """
    segments = [segment for level in schedule.levels[1:] for segment in level.segments]
    rows_of: dict[int, int] = {}
    for segment in segments:
        rows_of[segment.arity] = rows_of.get(segment.arity, 0) + segment.end - segment.begin
    kinds = {(segment.arity, segment.kind) for segment in segments}
    if vocabulary is not None:
        kinds |= {(arity, kind) for arity in rows_of for kind in vocabulary.kinds_of_arity.get(arity, ())}
    leaves = [(segment.kind, rounded(segment.end - segment.begin, _FEWEST_ROWS)) for segment in schedule.leaf_segments]
    symbol, is_number = schedule.symbol.numpy(), ~np.isnan(schedule.value.numpy())
    return BatchSizes(
        trees=trees,
        nodes=rounded(schedule.num_nodes, _FEWEST_ROWS),
        leaves=tuple(leaves),
        inner=tuple((arity, rounded(rows, _FEWEST_ROWS)) for arity, rows in sorted(rows_of.items())),
        kinds=tuple(sorted(kinds)),
        tiles=_tiles(schedule.levels[1:]),
        has_labels=(bool(((symbol >= 0) | is_number).all()), bool((schedule.function >= 0).all())),
        shared=schedule.shared,
    )


def rounded(size: int, least: int) -> int:
    """Return a size, at least ``least`` unless it is 0, rounded up to a multiple of an eighth of a power of 2."""
    if not size:
        return 0
    size = max(size, least)
    step = max(1, (1 << (size - 1).bit_length()) // 8)
    return -(-size // step) * step


def _tiles(levels: Iterable[Level]) -> tuple[int, ...]:
    """How many tiles each level has room for: a power of 2, and not fewer than the levels above it."""
    needed = [sum(-(-(part.end - part.begin) // ROWS_OF_TILE) for part in level.segments) for level in levels]
    room = [1 << (max(tiles, _FEWEST_TILES) - 1).bit_length() for tiles in reversed(needed)]
    room = [*accumulate(room, max)][::-1]
    return tuple(room + [_FEWEST_TILES] * (rounded(len(room), _FEWEST_LEVELS) - len(room)))


def padded_schedule(schedule: Schedule, sizes: BatchSizes, trees_per_example: int) -> Schedule:
    """Return the schedule of a batch with more leaves, nodes and trees: copies of the first of each sort.

    Nobody reads the added leaves. Inner rows are not padded, so every engine runs the schedule.

    Args:
        schedule: on the CPU.
        sizes: of the padded batch.
        trees_per_example: how many trees make an example; all trees of the first one are repeated.
    """
    level = sizes.leaf_level
    source = [
        _repeated(np.arange(old.begin, old.end), new.end - new.begin)
        for old, new in zip(schedule.leaf_segments, level.segments, strict=True)
    ]
    leaf = torch.from_numpy(np.concatenate(source) if source else np.zeros(0, np.int64))
    num_leaves, moved_by = schedule.num_leaf_rows, level.end - schedule.num_leaf_rows
    row = torch.arange(schedule.num_rows) + moved_by
    for old, new in zip(schedule.leaf_segments, level.segments, strict=True):
        row[old.begin : old.end] += new.begin - old.begin - moved_by
    roots = row[schedule.row_of_root].view(-1, trees_per_example)
    return replace(
        schedule,
        num_rows=schedule.num_rows + moved_by,
        num_nodes=sizes.nodes,
        num_trees=sizes.trees,
        levels=(level, *(_moved(each, moved_by) for each in schedule.levels[1:])) if schedule.levels else (),
        child=row[schedule.child],
        row_of_node=first_repeated(row[schedule.row_of_node], sizes.nodes),
        row_of_root=first_repeated(roots, sizes.trees // trees_per_example).flatten(),
        node_of_row=torch.cat([schedule.node_of_row[leaf], schedule.node_of_row[num_leaves:]]),
        kind_of_row=torch.cat([schedule.kind_of_row[leaf], schedule.kind_of_row[num_leaves:]]),
        symbol=schedule.symbol[leaf],
        value=schedule.value[leaf],
    )


def first_repeated(rows: torch.Tensor, size: int) -> torch.Tensor:
    """Return rows, followed by copies of the first one."""
    return torch.cat([rows, rows[:1].expand(size - len(rows), *rows.shape[1:])]) if size > len(rows) else rows


def _repeated(rows: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.append(rows, np.full(size - len(rows), rows[0]))


def _moved(level: Level, by: int) -> Level:
    segments = (part._replace(begin=part.begin + by, end=part.end + by) for part in level.segments)
    return Level(level.begin + by, level.end + by, tuple(segments))
