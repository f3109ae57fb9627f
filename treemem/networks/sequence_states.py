"""What a sequence encoder returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from treemem.data.sum_count import SumCount
from treemem.networks.encoder_output import EncoderOutput


class SequenceStates(EncoderOutput):
    """The outputs along each sequence, and its encoding.

    Args:
        root: ``[examples, parts, hidden_size]``.
        h: the outputs at every token, ``[sequences, longest, hidden_size]``, 0 after the end of shorter sequences.
        lengths: int64 ``[sequences]``.
        trace, auxiliary_losses, state: see :class:`EncoderOutput`.
    """

    def __init__(
        self,
        root: torch.Tensor,
        h: torch.Tensor,
        lengths: torch.Tensor,
        trace: Mapping[str, torch.Tensor] | None = None,
        auxiliary_losses: Mapping[str, SumCount] | None = None,
        state: Any = None,
    ) -> None:
        super().__init__(root, h, auxiliary_losses=auxiliary_losses, trace=trace, state=state)
        self.h = h
        self.lengths = lengths

    def __repr__(self) -> str:
        return f"<SequenceStates of {len(self.lengths)} sequences>"
