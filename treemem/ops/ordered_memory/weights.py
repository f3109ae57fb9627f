"""The weights and rates of the Ordered Memory, by name."""

from __future__ import annotations

from typing import NamedTuple

from treemem.ops.affine import Affine
from treemem.ops.gated_recursive import GatedCellWeights

THRESHOLD = 1e-5
"""Slots with less cumulative probability than this are out of reach of the next attention."""


class PlainCellWeights(NamedTuple):
    """Of the recursive cell without gates.

    Attributes:
        map: ``W``, ``[hidden_size, 2 * hidden_size]``, of ``[vertical; horizontal]``.
    """

    map: Affine


class OrderedMemoryWeights(NamedTuple):
    """All weights of one direction.

    Attributes:
        input: ``[hidden_size, input_size]``.
        input_norm: ``[hidden_size]``; the gated cell has the same.
        query, key: ``[hidden_size, hidden_size]``.
        query_norm, key_norm: ``[hidden_size]``.
        score: ``[1, hidden_size]``.
        cell: of either cell; of the gated one, the first child is the vertical one.
    """

    input: Affine
    input_norm: Affine
    query: Affine
    query_norm: Affine
    key: Affine
    key_norm: Affine
    score: Affine
    cell: GatedCellWeights | PlainCellWeights


class Dropouts(NamedTuple):
    """Probabilities that an entry is dropped; 0 outside training.

    Attributes:
        cell: of what each linear map of the cell reads.
        memory: of what query and key maps read, and of the rectified sum that is scored.
    """

    cell: float = 0.0
    memory: float = 0.0


NO_DROPOUT = Dropouts()
