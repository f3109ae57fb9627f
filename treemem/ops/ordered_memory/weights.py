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


class LayerNormScoreWeights(NamedTuple):
    """Of the published code's score, ``w . relu(LN_q(W_q x + b_q) + LN_k(W_k C_i + b_k)) + b``.

    Attributes:
        query, key: ``[hidden_size, hidden_size]``.
        query_norm, key_norm: ``[hidden_size]``.
        score: ``w`` and ``b``, ``[1, hidden_size]``.
    """

    query: Affine
    query_norm: Affine
    key: Affine
    key_norm: Affine
    score: Affine


class TanhScoreWeights(NamedTuple):
    """Of the paper's score, ``w . tanh(W [C_i; x] + b_1) + b_2`` (eq. 8).

    Attributes:
        map: ``W`` and ``b_1``, ``[hidden_size, 2 * hidden_size]``.
        score: ``w`` and ``b_2``, ``[1, hidden_size]``.
    """

    map: Affine
    score: Affine


class OrderedMemoryWeights(NamedTuple):
    """All weights of one direction.

    Attributes:
        input: ``[hidden_size, input_size]``.
        input_norm: ``[hidden_size]``; the gated cell has the same.
        attention: of either score.
        cell: of either cell; of the gated one, the first child is the vertical one.
    """

    input: Affine
    input_norm: Affine
    attention: LayerNormScoreWeights | TanhScoreWeights
    cell: GatedCellWeights | PlainCellWeights


class Dropouts(NamedTuple):
    """Probabilities that an entry is dropped; 0 outside training.

    Attributes:
        cell: of what each linear map of the cell reads.
        memory: of what the maps of the score read.
    """

    cell: float = 0.0
    memory: float = 0.0


NO_DROPOUT = Dropouts()
