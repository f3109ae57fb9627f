"""A neural stack or queue over a sequence of known actions."""

from __future__ import annotations

import torch

from treemem.networks.memories.controllers.cuda import known_in_kernels
from treemem.networks.memories.neural_stack.cuda import strengths_in_kernels
from treemem.networks.memories.neural_stack.equations import End, StrengthState, run_sequence


def known_actions(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> torch.Tensor:
    """Return what is read at each step, ``[batch, time, size]``: in one launch where kernels run, or else in torch.

    Args:
        value: ``[batch, time, size]``.
        push, pop: strengths, ``[batch, time]``, not negative.
        end: where the memory pops and is read.
        read_strength: how much strength is read.
    """
    batch, time, size = value.shape
    empty = StrengthState.empty(batch, size, value)
    reads = known_in_kernels(lambda: strengths_in_kernels(empty, time, [end], read_strength), value, push, pop)
    return run_sequence(value, push, pop, end, read_strength) if reads is None else reads
