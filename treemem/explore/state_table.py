"""States of nodes or tokens, with equal vectors stored once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treemem.explore.decimals import coded, packed, shown

Sort = Literal["state", "gate", "step"]
"""A state of a node or token, a gate of a node, or the trace of a step at a token."""


@dataclass(frozen=True)
class Values:
    """The vectors of some items under one name.

    Attributes:
        sort: the sort of the vectors.
        values: ``[items, entries, width]``; entries are the rows of a stack, or the children.
        known: bool ``[items, entries]``, which entries exist; None: all.
        axis: the axis of the entries, or of the numbers of a single entry: ``"slots"``, ``"children"``, ``"layers"``.
    """

    sort: Sort
    values: NDArray[np.float64]
    known: NDArray[np.bool_] | None = None
    axis: str = ""


class StateTable:
    """Vectors of nodes or tokens by name, as a page stores them.

    Equal vectors are stored once. Items whose vectors are all equal, such as those of equal subtrees, share a row.
    """

    def __init__(self) -> None:
        self._pools: dict[int, _VectorPool] = {}
        self._chunks: list[tuple[int, dict[str, Values]]] = []

    def add(self, num_items: int, fields: Mapping[str, Values]) -> None:
        """Append items with their vectors by name. Shorter vectors than others of their name end in NaN."""
        self._chunks.append((num_items, dict(fields)))

    def place_of(self, vectors: NDArray[np.float64]) -> NDArray[np.int64]:
        """Store vectors ``[count, width]``. Return their places among those of their width."""
        width = vectors.shape[1]
        return self._pools.setdefault(width, _VectorPool(width)).add(vectors)

    def finish(self) -> tuple[dict[str, Any], list[int]]:
        """Return the table as plain data, and the row of each item.

        Returns:
            ``fields``: name, sort, axis, width, number of entries, and bounds of the finite numbers. ``pools``: packed
            vectors by width. ``rows``: by name, for each row and entry, the place of its vector in its pool, or -1.
        """
        num_items = sum(count for count, _ in self._chunks)
        fields: dict[str, list[tuple[int, Values]]] = {}
        first = 0
        for count, chunk in self._chunks:
            for name, values in chunk.items():
                fields.setdefault(name, []).append((first, values))
            first += count
        entries = {name: max(field.values.shape[1] for _, field in parts) for name, parts in fields.items()}
        widths = {name: max(field.values.shape[2] for _, field in parts) for name, parts in fields.items()}
        table = np.full((num_items, sum(entries.values())), -1, np.int64)
        column = 0
        for name, parts in fields.items():
            for begin, field in parts:
                end, width = begin + len(field.values), column + field.values.shape[1]
                table[begin:end, column:width] = self._places(field, widths[name])
            column += entries[name]
        rows, row_of_item = np.unique(table, axis=0, return_inverse=True)
        columns = np.split(rows, np.cumsum(list(entries.values()))[:-1], axis=1) if entries else []
        data = {
            "fields": [
                {
                    "name": name,
                    "sort": parts[-1][1].sort,
                    "axis": parts[-1][1].axis,
                    "width": widths[name],
                    "entries": entries[name],
                    **_bounds([field for _, field in parts]),
                }
                for name, parts in fields.items()
            ],
            "pools": {str(width): pool.text() for width, pool in self._pools.items()},
            "rows": {name: part.ravel().tolist() for name, part in zip(entries, columns, strict=True)},
        }
        return data, row_of_item.ravel().tolist()

    def _places(self, field: Values, width: int) -> NDArray[np.int64]:
        """Return the place of each vector, -1 where there is none."""
        rest = width - field.values.shape[2]
        values = np.pad(field.values, ((0, 0), (0, 0), (0, rest)), constant_values=np.nan)
        place = self.place_of(values.reshape(-1, width)).reshape(values.shape[:2])
        return place if field.known is None else np.where(field.known, place, -1)


def _bounds(fields: Sequence[Values]) -> dict[str, str]:
    arrays = [field.values if field.known is None else field.values[field.known] for field in fields]
    finite = [array[np.isfinite(array)] for array in arrays]
    low = min(float(array.min(initial=0.0)) for array in finite)
    return {"low": shown(low), "high": shown(max(float(array.max(initial=0.0)) for array in finite))}


class _VectorPool:
    """Distinct vectors of one width, rounded as a page shows them."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._place: dict[bytes, int] = {}
        self._kept: list[NDArray[np.uint32]] = []

    def add(self, vectors: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the place of each vector, ``[count, width]``."""
        codes = coded(vectors)
        places = np.empty(len(codes), np.int64)
        for number, code in enumerate(codes):
            known = len(self._place)
            place = places[number] = self._place.setdefault(code.tobytes(), known)
            if place == known:
                self._kept.append(code)
        return places

    def text(self) -> str:
        return packed(np.array(self._kept, np.uint32).reshape(len(self._kept), self._width))


def entries_of(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return states of any shape ``[items, ...]`` as ``[items, entries, width]``."""
    items, *sizes = values.shape
    width = sizes[-1] if sizes else 1
    return np.asarray(values, np.float64).reshape(items, math.prod(sizes[:-1]), width)
