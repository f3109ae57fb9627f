"""Gates of the slots of a memory from syntactic distances."""

from __future__ import annotations

import torch
from torch.nn import functional


def slot_gates(
    distance: torch.Tensor, history: torch.Tensor, slots: int, resolution: float, *, hard: bool
) -> torch.Tensor:
    """Return the gate of each slot at each token, the latest slot first, ``[sequences, longest, slots]``.

    With ``x = distance_t - history_(t-k)``, slot ``k`` lets through ``(clip(2 x / resolution + 1, -1, 1) + 1) / 2``,
    or, softly, ``sigmoid(10 x / resolution + 5)``. Its gate is the product of this for the slots up to it: a slot
    behind a token of a larger distance is closed.

    Args:
        distance: ``[sequences, longest]``.
        history: the distances before the first token and at all tokens, infinity where there is none,
            ``[sequences, slots + longest]``.
        slots: how many.
        resolution: see above.
        hard: whether gates become exactly 0 and 1.
    """
    earlier = history.unfold(1, slots, 1)[:, 1:].flip(2)
    difference = (distance[:, :, None] - earlier) / resolution
    through = (functional.hardtanh(2 * difference + 1) + 1) / 2 if hard else torch.sigmoid(10 * difference + 5)
    return through.cumprod(2)
