"""What every encoder returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from treemem.data.sum_count import SumCount


class EncoderOutput:
    """What an encoder returns: encodings of trees or sequences, and outputs at their nodes or tokens.

    Args:
        root: the encodings, ``[examples, parts, hidden_size]``.
        outputs: ``[nodes, hidden_size]`` in node order, or ``[sequences, longest, hidden_size]``.
        auxiliary_losses: further losses by name; the recipe gives them weights.
        trace: gates, pointers or attention weights at each node or token, by name; empty without ``trace=True``. The
            network's ``trace_axes`` names the axes.
        state: the state from which a sequence encoder continues in the next batch of a stream: tensors, or tuples of
            tensors.
    """

    def __init__(
        self,
        root: torch.Tensor,
        outputs: torch.Tensor,
        *,
        auxiliary_losses: Mapping[str, SumCount] | None = None,
        trace: Mapping[str, torch.Tensor] | None = None,
        state: Any = None,
    ) -> None:
        self.root, self.outputs = root, outputs
        self.auxiliary_losses = dict(auxiliary_losses or {})
        self.trace = dict(trace or {})
        self.state = state


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
