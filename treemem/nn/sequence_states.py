"""What a sequence encoder returns."""

from __future__ import annotations

from collections.abc import Mapping

import torch


class SequenceStates:
    """The states along each sequence, and its encoding.

    Args:
        root: ``[examples, trees_per_example, hidden_size]``.
        h: the outputs at every token, ``[sequences, longest, hidden_size]``, 0 after the end of shorter sequences.
        lengths: int64 ``[sequences]``.
        trace: what the network did at each step, by name; empty unless it was asked for. The network's class says what
            the names mean.
    """

    def __init__(
        self,
        root: torch.Tensor,
        h: torch.Tensor,
        lengths: torch.Tensor,
        trace: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.root = root
        self.h = h
        self.lengths = lengths
        self.trace = {} if trace is None else dict(trace)

    @property
    def outputs(self) -> torch.Tensor:
        """The outputs at every token, ``[sequences, longest, hidden_size]``."""
        return self.h

    def __repr__(self) -> str:
        return f"<SequenceStates of {len(self.lengths)} sequences>"
