"""What every encoder returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from treemem.data.sum_count import SumCount


class EncoderOutput:
    """Encodings of whole trees or sequences, and outputs at each of their nodes or tokens.

    Args:
        root: the encodings, ``[examples, parts, hidden_size]``.
        outputs: ``[nodes, hidden_size]`` in node order, or ``[sequences, longest, hidden_size]``.
        auxiliary_losses: further losses by name; the recipe gives them weights.
        trace: what the network did at each node or token, by name; empty unless it was asked for. The network's
            ``trace_axes`` says what the axes are.
        state: what a sequence encoder carries on to the next batch of a stream: tensors, or tuples of them.
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
        self._root, self._outputs = root, outputs
        self.auxiliary_losses = dict(auxiliary_losses or {})
        self.trace = dict(trace or {})
        self.state = state

    @property
    def root(self) -> torch.Tensor:
        """The encodings, ``[examples, parts, hidden_size]``."""
        return self._root

    @property
    def outputs(self) -> torch.Tensor:
        """The outputs at each node, ``[nodes, hidden_size]``, or token, ``[sequences, longest, hidden_size]``."""
        return self._outputs
