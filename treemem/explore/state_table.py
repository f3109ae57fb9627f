"""States of nodes or tokens, with equal vectors stored once."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
        self._sort: dict[str, Sort] = {}
        self._axis: dict[str, str] = {}
        self._width: dict[str, int] = {}
        self._bounds: dict[str, tuple[float, float]] = {}
        self._chunks: list[tuple[int, dict[str, NDArray[np.int64]]]] = []

    def add(self, num_items: int, fields: Mapping[str, Values]) -> None:
        """Append items with their vectors by name."""
        chunk = {}
        for name, field in fields.items():
            width = field.values.shape[2]
            pool = self._pools.setdefault(width, _VectorPool(width))
            place = pool.add(field.values.reshape(-1, width)).reshape(field.values.shape[:2])
            chunk[name] = place if field.known is None else np.where(field.known, place, -1)
            self._sort[name], self._axis[name], self._width[name] = field.sort, field.axis, width
            told = field.values if field.known is None else field.values[field.known]
            finite = told[np.isfinite(told)]
            low, high = self._bounds.get(name, (0.0, 0.0))
            self._bounds[name] = (
                min(low, float(finite.min(initial=0.0))),
                max(high, float(finite.max(initial=0.0))),
            )
        self._chunks.append((num_items, chunk))

    def place_of(self, vectors: NDArray[np.float64]) -> list[int]:
        """Store vectors ``[count, width]`` of no item. Return their places among those of their width."""
        width = vectors.shape[1]
        return self._pools.setdefault(width, _VectorPool(width)).add(vectors).tolist()

    def finish(self) -> tuple[dict[str, Any], list[int]]:
        """Return the table as plain data, and the row of each item.

        Returns:
            ``fields``: name, sort, axis, width, number of entries, and bounds of the finite numbers. ``pools``: packed
            vectors by width. ``rows``: by name, for each row and entry, the place of its vector in its pool, or -1.
        """
        num_items = sum(count for count, _ in self._chunks)
        entries = {name: max(chunk[name].shape[1] for _, chunk in self._chunks if name in chunk) for name in self._sort}
        table = np.full((num_items, sum(entries.values())), -1, np.int64)
        first = 0
        for count, chunk in self._chunks:
            column = 0
            for name, width in entries.items():
                if name in chunk:
                    table[first : first + count, column : column + chunk[name].shape[1]] = chunk[name]
                column += width
            first += count
        rows, row_of_item = np.unique(table, axis=0, return_inverse=True)
        columns = np.split(rows, np.cumsum(list(entries.values()))[:-1], axis=1) if entries else []
        data = {
            "fields": [
                {
                    "name": name,
                    "sort": self._sort[name],
                    "axis": self._axis[name],
                    "width": self._width[name],
                    "entries": entries[name],
                    "low": shown(self._bounds[name][0]),
                    "high": shown(self._bounds[name][1]),
                }
                for name in entries
            ],
            "pools": {str(width): pool.text() for width, pool in self._pools.items()},
            "rows": {name: part.ravel().tolist() for name, part in zip(entries, columns, strict=True)},
        }
        return data, row_of_item.ravel().tolist()


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
