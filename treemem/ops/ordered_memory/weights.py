"""The weights and rates of the Ordered Memory, by name."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

EPSILON = 1e-5
"""What every layer norm adds to the variance."""

THRESHOLD = 1e-5
"""Slots with less cumulative probability than this are out of reach of the next attention."""


class Affine(NamedTuple):
    """A linear map ``W x + b``, ``weight`` ``[outputs, inputs]``, or the gain and bias of a layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor


class GatedCellWeights(NamedTuple):
    """Of the gated recursive cell; blocks in the order vertical gate, horizontal gate, candidate's gate, candidate.

    Attributes:
        hidden: ``W_1``, ``[4 * hidden_size, 2 * hidden_size]``, of ``[vertical; horizontal]``.
        gates: ``W_2``, ``[4 * hidden_size, 4 * hidden_size]``.
        norm: the layer norm, ``[hidden_size]``.
    """

    hidden: Affine
    gates: Affine
    norm: Affine


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
        cell: of either cell.
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


def linear(values: torch.Tensor, weights: Affine) -> torch.Tensor:
    """``W x + b``; under autocast a product of less precision, but a result of the weights' own."""
    return functional.linear(values, *weights).to(weights.bias.dtype)


def layer_norm(values: torch.Tensor, weights: Affine) -> torch.Tensor:
    """``gain * (x - mean(x)) / sqrt(var(x) + 1e-5) + bias`` along the last dimension."""
    return functional.layer_norm(values, weights.bias.shape, *weights, EPSILON)
