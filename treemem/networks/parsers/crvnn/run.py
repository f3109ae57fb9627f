"""Continuous recursion over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.parsers.crvnn.cuda import kernel_steps
from treemem.networks.parsers.crvnn.equations import (
    EPSILON,
    CRvNNWeights,
    Ends,
    NeighborEquation,
    Recursion,
    naive_steps,
)
from treemem.networks.parsers.crvnn.native import native_steps


def continuous_recursion(
    leaves: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    weights: CRvNNWeights,
    *,
    engine: SequenceEngine = "auto",
) -> Recursion:
    """Run the recursion over sequences, each as if it were alone.

    Args:
        leaves: ``[sequences, longest, hidden_size]``, on the right of each sequence padding of any content.
        ends: the states of START and END, ``[2, hidden_size]``.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: and options.
        engine: ``"fused"`` (``"auto"``), in C++ or in kernels for CUDA where they can be used, or ``"naive"``. They
            give the same results, but other dropout.

    Returns:
        See :class:`Recursion`; 0 for an empty sequence.
    """
    refuse_transforms_unless_naive(engine)
    sequences, longest, width = leaves.shape
    shapes = ((sequences, longest, width), (sequences, width), (sequences,), (sequences, longest))
    nothing = Recursion(*(leaves.new_zeros(shape) for shape in shapes))
    some = (lengths > 0).nonzero().squeeze(1)
    if not len(some):
        return nothing
    some_lengths = lengths[some]
    some_there, there = (to_device(tensor, leaves.device) for tensor in (some, some_lengths))
    states = with_ends(leaves.index_select(0, some_there)[:, : int(some_lengths.max())], ends, there)
    steps = None
    if engine != "naive":
        steps = kernel_steps(states, there, weights) or native_steps(states, some_lengths, weights)
    steps = steps or naive_steps(states, there, weights)
    recursion = recursion_of(steps, there, weights.equation, longest)
    return Recursion(*(whole.index_copy(0, some_there, part) for whole, part in zip(nothing, recursion, strict=True)))


def with_ends(leaves: torch.Tensor, ends: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Put START before sequences ``[sequences, longest, hidden_size]`` and END behind their last tokens; 0 after it."""
    place = torch.arange(leaves.shape[1] + 2, device=leaves.device)
    length = lengths[:, None]
    states = functional.pad(leaves, (0, 0, 1, 1)).masked_fill(((place < 1) | (place > length))[:, :, None], 0)
    return states + (place == 0)[:, None] * ends[0] + (place == length + 1)[:, :, None] * ends[1]


def recursion_of(
    steps: Ends, lengths: torch.Tensor, equation: NeighborEquation, longest: int, *, alone: bool = True
) -> Recursion:
    """Return what comes of sequences that have ended, padded to the longest; see :func:`naive_steps`."""
    wider, epsilon = longest + 2 - steps.states.shape[1], EPSILON[equation]
    padding = torch.arange(longest, device=lengths.device) >= lengths[:, None]
    last = (lengths - 1)[:, None]
    states = functional.pad(steps.states, (0, 0, 0, wider))[:, 1:-1].masked_fill(padding[:, :, None], 0)
    existence, total = (
        functional.pad(values, (0, wider))[:, 1:-1].masked_fill(padding, 0) for values in (steps.existence, steps.total)
    )
    among = existence.sum(1) + epsilon * (lengths.to(existence) if alone else longest)
    share = existence.gather(1, last).squeeze(1) / among
    penalty = -(share + epsilon).log() * (~steps.ended_well | (equation == 6))
    encoding = states.gather(1, last[:, :, None].expand(-1, -1, states.shape[2])).squeeze(1)
    return Recursion(states, encoding, penalty, total)
