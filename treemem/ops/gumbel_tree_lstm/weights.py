"""Weights of the Gumbel Tree-LSTM, and its composition of two nodes."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine, linear
from treemem.ops.tree_lstm import tree_lstm_step


class GumbelTreeWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: of the Tree-LSTM of two children, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            :data:`treemem.ops.tree_lstm.step.GATES`.
        query: the score of a composition is ``query . h / scale``, ``[hidden_size]``.
        scale: what scores are divided by.
    """

    cell: Affine
    query: torch.Tensor
    scale: float


def compose(left: torch.Tensor, right: torch.Tensor, cell: Affine) -> torch.Tensor:
    """Return the states ``[h; c]`` of pairs of states, all ``[pairs, 2 * hidden_size]``."""
    (left_hidden, left_cell), (right_hidden, right_cell) = (each.chunk(2, 1) for each in (left, right))
    preactivation = linear(torch.cat([left_hidden, right_hidden], 1), cell)
    return torch.cat(tree_lstm_step(preactivation, torch.stack([left_cell, right_cell], 1)), 1)
