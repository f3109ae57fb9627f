"""Continuous recursion over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch.nn import functional

from treemem.checked_options import checked_choice
from treemem.device_copy import to_device
from treemem.ops.crvnn.fused import fused_recursion
from treemem.ops.crvnn.naive import naive_recursion
from treemem.ops.crvnn.weights import CRvNNWeights, Recursion
from treemem.ops.second_derivative import refuse_transforms_unless_naive

CRvNNEngine = Literal["auto", "fused", "naive"]


def continuous_recursion(
    leaves: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    weights: CRvNNWeights,
    *,
    engine: CRvNNEngine = "auto",
) -> Recursion:
    """Run the recursion over sequences, each as if it were alone.

    Args:
        leaves: ``[sequences, longest, hidden_size]``, on the right of each sequence padding of any content.
        ends: the states of START and END, ``[2, hidden_size]``.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: and options.
        engine: ``"fused"`` (``"auto"``) or ``"naive"``, sequence by sequence. They give the same results, but other
            dropout.

    Returns:
        See :class:`Recursion`; 0 for an empty sequence.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_choice("engine", engine, get_args(CRvNNEngine))
    refuse_transforms_unless_naive(engine)
    sequences, longest, width = leaves.shape
    shapes = ((sequences, longest, width), (sequences, width), (sequences,), (sequences, longest))
    nothing = Recursion(*(leaves.new_zeros(shape) for shape in shapes))
    some = (lengths > 0).nonzero().squeeze(1)
    if not len(some):
        return nothing
    own = lengths[some]
    some_there, own_there = (to_device(each, leaves.device) for each in (some, own))
    most = int(own.max())
    states = with_ends(leaves.index_select(0, some_there)[:, :most], ends, own_there)
    if engine == "naive":
        parts = [
            _widened(naive_recursion(states[row : row + 1, : length + 2], own_there[row : row + 1], weights), longest)
            for row, length in enumerate(own.tolist())
        ]
        found = Recursion(*(torch.cat(each) for each in zip(*parts, strict=True)))
    else:
        found = _widened(fused_recursion(states, own, weights), longest)
    return Recursion(*(whole.index_copy(0, some_there, each) for whole, each in zip(nothing, found, strict=True)))


def with_ends(leaves: torch.Tensor, ends: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Put START before sequences ``[sequences, longest, hidden_size]`` and END behind their last tokens; 0 after it."""
    place = torch.arange(leaves.shape[1] + 2, device=leaves.device)
    length = lengths[:, None]
    states = functional.pad(leaves, (0, 0, 1, 1)).masked_fill(((place < 1) | (place > length))[:, :, None], 0)
    return states + (place == 0)[:, None] * ends[0] + (place == length + 1)[:, :, None] * ends[1]


def _widened(found: Recursion, longest: int) -> Recursion:
    """Pad what there is of each token to the longest sequence."""
    wider = longest - found.existence.shape[1]
    states, existence = functional.pad(found.states, (0, 0, 0, wider)), functional.pad(found.existence, (0, wider))
    return found._replace(states=states, existence=existence)
