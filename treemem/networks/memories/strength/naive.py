"""The equations of the neural stack and queue as they stand in the paper: a loop over time steps and over cells."""

from __future__ import annotations

import torch

from treemem.networks.memories.strength.ends import End


def naive_run(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is read and the strengths after every step (Grefenstette et al. 2015, eq. 1-3 and 6-7).

    At each step the memory pops, then pushes ``value`` with strength ``push``, then is read.

    Args:
        value: ``[batch, time, size]``.
        push, pop: strengths, ``[batch, time]``, not negative.
        end: ``"top"`` for a stack, ``"bottom"`` for a queue: where it pops and is read.
        read_strength: how much strength is read; 1 in the paper.

    Returns:
        ``[batch, time, size]``, and ``[batch, time, items]``, 0 for items that are pushed later.
    """
    batch, time, _ = value.shape
    nothing = value.new_zeros(batch)
    strengths: list[torch.Tensor] = []  # oldest first
    readouts, history = [], []
    for step in range(time):
        before = strengths
        strengths = []
        for place, strength in enumerate(before):
            nearer = before[place + 1 :] if end == "top" else before[:place]
            left_to_pop = torch.relu(pop[:, step] - sum(nearer, nothing)) if nearer else pop[:, step]
            strengths.append(torch.relu(strength - left_to_pop))
        strengths.append(push[:, step])
        readout = torch.zeros_like(value[:, step])
        for place, strength in enumerate(strengths):
            nearer = strengths[place + 1 :] if end == "top" else strengths[:place]
            left_to_read = torch.relu(read_strength - sum(nearer, nothing))
            readout = readout + torch.minimum(strength, left_to_read)[:, None] * value[:, place]
        readouts.append(readout)
        history.append(torch.stack([*strengths, *[nothing] * (time - step - 1)], 1))
    if not time:
        return torch.zeros_like(value), value.new_zeros(batch, 0, 0)
    return torch.stack(readouts, 1), torch.stack(history, 1)
