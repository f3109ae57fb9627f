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
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``.
        lengths: int64 ``[sequences]``, on the same device.

    Returns:
        int64 ``[sequences, longest]``; 0 at the first token and at padding.
    """
    sequences, longest = places.shape[0], places.shape[1] + 1
    begins = torch.arange(longest, device=places.device).expand(sequences, -1)
    joined = places.new_zeros(sequences, longest)
    for step in range(1, longest):
        at = places[:, step - 1, None] + 1
        token = begins.gather(1, at)
        joined.scatter_add_(1, token, step * (step < lengths[:, None]))
        column = torch.arange(longest - step, device=places.device)
        begins = begins.gather(1, column + (column >= at))
    return joined
