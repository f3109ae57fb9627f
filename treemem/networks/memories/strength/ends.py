"""Popping and reading at one end of a memory whose items have strengths, for all items at once."""

from __future__ import annotations

from typing import Literal

import torch

End = Literal["top", "bottom"]
"""The end of a memory: ``"top"``: the newest item, last in its tensors; ``"bottom"``: the oldest, first in them."""


def nearer_strength(strength: torch.Tensor, end: End) -> torch.Tensor:
    """Return the strength of all items that are nearer to an end than each item, ``[..., items]``."""
    if end == "bottom":
        return strength.cumsum(-1) - strength
    return strength.flip(-1).cumsum(-1).flip(-1) - strength


def popped(strength: torch.Tensor, pop: torch.Tensor, end: End) -> torch.Tensor:
    """Return the strengths after popping (Grefenstette et al. 2015, eq. 2): ``max(0, s - max(0, u - nearer))``.

    For the nearest item ``max(0, u)`` is ``u`` itself, as in the published code, so that it has a gradient at 0.

    Args:
        strength: ``[batch, items]``.
        pop: how much to take away, ``[batch]``.
        end: where.
    """
    if not strength.shape[1]:
        return strength
    pop = pop[:, None]
    if end == "bottom":
        left = torch.cat([pop, torch.relu(pop - strength[:, :-1].cumsum(1))], 1)
    else:
        left = torch.cat([torch.relu(pop - strength[:, 1:].flip(1).cumsum(1).flip(1)), pop], 1)
    return torch.relu(strength - left)


def read_weights(strength: torch.Tensor, end: End, read_strength: float = 1.0) -> torch.Tensor:
    """Return the weight of each item in what is read (eq. 3): ``min(s, max(0, read_strength - nearer))``."""
    return torch.minimum(strength, torch.relu(read_strength - nearer_strength(strength, end)))
