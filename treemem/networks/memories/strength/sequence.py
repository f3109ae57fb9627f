"""A neural stack or queue over a whole sequence of known actions."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.networks.memories.strength.ends import End, popped, read_weights


def run_sequence(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> torch.Tensor:
    """Return what is read at each step, ``[batch, time, size]``; arguments as :func:`naive_run`.

    What is read at all steps is one product with the values. It takes memory for ``time * time * batch`` numbers.
    """
    time = value.shape[1]
    history = []
    strength = push[:, :0]  # nearest first
    for step in range(time):
        strength = popped(strength, pop[:, step], "bottom")
        new = push[:, step, None]
        strength = torch.cat([new, strength] if end == "top" else [strength, new], 1)
        oldest_first = strength.flip(1) if end == "top" else strength
        history.append(functional.pad(oldest_first, (0, time - step - 1)))
    if not history:
        return torch.zeros_like(value)
    weight = read_weights(torch.stack(history, 1), end, read_strength)
    return torch.bmm(weight.to(value.dtype), value)
