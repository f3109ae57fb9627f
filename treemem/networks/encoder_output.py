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
