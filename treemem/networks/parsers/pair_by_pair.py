"""Sequences that become trees pair by pair: a step chooses one of all adjacent pairs and puts it in their place."""

from __future__ import annotations

import torch

from treemem.engines.affine import Affine, linear
from treemem.networks.trees.tree_lstm.equations import tree_lstm_step


def compose(left: torch.Tensor, right: torch.Tensor, cell: Affine, *, bounded: bool = False) -> torch.Tensor:
    """Return the states ``[h; c]`` of pairs of states, all ``[..., 2 * hidden_size]``.

    Args:
        left, right: the states.
        cell: of a Tree-LSTM, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            ``GATES``.
        bounded: whether a node hands ``tanh(c)`` to its parent instead of ``c``.
    """
    hidden, cells = torch.stack([left, right], -2).chunk(2, -1)
    preactivation = linear(hidden.flatten(-2), cell)
    new_hidden, new_cell = tree_lstm_step(preactivation.flatten(0, -2), cells.flatten(0, -3))
    return torch.cat([new_hidden, new_cell.tanh() if bounded else new_cell], 1).view(left.shape)


def joining_steps(places: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the step, from 1, that joins the constituent that begins at a token with the constituent on its left.

    Args:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``; the host waits for them.
        lengths: int64 ``[sequences]``, on the CPU.

    Returns:
        int64 ``[sequences, longest]``, on the CPU; 0 at the first token and at padding.
    """
    joined = torch.zeros(len(places), places.shape[1] + 1, dtype=torch.int64)
    for row, (chosen, length) in enumerate(zip(places.tolist(), lengths.tolist(), strict=True)):
        begins = list(range(length))
        tokens = [begins.pop(place + 1) for place in chosen[: max(length - 1, 0)]]
        joined[row, tokens] = torch.arange(1, len(tokens) + 1)
    return joined
