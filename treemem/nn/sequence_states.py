"""What a sequence encoder returns."""

from __future__ import annotations

import torch


class SequenceStates:
    """The states along each sequence, and its encoding.

    Args:
        root: ``[examples, trees_per_example, hidden_size]``.
        h: the outputs at every token, ``[trees, longest, hidden_size]``, 0 after the end of shorter sequences.
        lengths: int64 ``[trees]``.
    """

    def __init__(self, root: torch.Tensor, h: torch.Tensor, lengths: torch.Tensor) -> None:
        self.root = root
        self.h = h
        self.lengths = lengths

    def __repr__(self) -> str:
        return f"<SequenceStates of {len(self.lengths)} sequences>"
