"""Weights of the parser, and the composition of two nodes."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine, linear
from treemem.ops.tree_lstm import tree_lstm_step


class ParserWeights(NamedTuple):
    """All weights of the parser above its leaves.

    Attributes:
        cell: of its Tree-LSTM, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            :data:`treemem.ops.tree_lstm.step.GATES`.
        query: the score of a pair is ``query . h`` of its composition, ``[hidden_size]``.
    """

    cell: Affine
    query: torch.Tensor


def compose(left: torch.Tensor, right: torch.Tensor, cell: Affine) -> torch.Tensor:
    """Return the states of pairs of states ``[h; c]``, all ``[pairs, 2 * hidden_size]``.

    A composition hands ``tanh(c)`` to its parent, as in the authors' code, where ``tanh`` works in place.
    """
    (left_hidden, left_cell), (right_hidden, right_cell) = (each.chunk(2, 1) for each in (left, right))
    preactivation = linear(torch.cat([left_hidden, right_hidden], 1), cell)
    hidden, new_cell = tree_lstm_step(preactivation, torch.stack([left_cell, right_cell], 1))
    return torch.cat([hidden, new_cell.tanh()], 1)
