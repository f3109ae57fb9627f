"""A superposition stack in C++, with a controller or with known actions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from treemem.native.large_pages import empty_rows
from treemem.native.structures import Structure
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource, run_known


class Superposition(ControlledMemory):
    """The stack that a controller controls by a value, and by logits of push, pop and perhaps no_op.

    Rows that are still empty are not computed: the weights of the actions add up to 1, so they stay empty. The result
    is the stack after the last token of each sequence.

    Args:
        stacks: of each sequence, ``[sequences, depth, value_size]``.
        empty: what an empty row holds.
        actions: how many there are: 2, or 3 with no_op.
    """

    source = MemorySource(
        Path(__file__).with_name("kernel.cpp"),
        Structure(
            "FIELDS",
            "int64_t value_size, actions, depth",
            "int64_t rows_before",  # that can differ from an empty one before the first step
            "int64_t all_kept",  # all stacks, or only those of the last two steps
            "double empty",  # what an empty row holds
            "const int64_t *starts",  # [num_steps], where the stacks of each step begin
            "const REAL *first",  # [sequences, depth, value_size]
            "REAL *last",  # the same
            "REAL *stacks",  # of each step [sequences, room, value_size]
        ),
        Structure(
            "MEMORY_GRADIENTS",
            "REAL *stacks",  # of the last ones, [sequences, depth, value_size]; becomes that of the first ones
        ),
    )

    def __init__(self, stacks: torch.Tensor, empty: float, actions: int) -> None:
        self.tensors, self.control_size = (stacks,), stacks.shape[2] + actions
        self._empty, self._actions = empty, actions
        self._is_empty = not stacks.requires_grad and bool((stacks == empty).all())

    def begin(
        self, tensors: Sequence[torch.Tensor], sizes: list[int], keeps: bool
    ) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
        (stacks,) = tensors
        sequences, depth, size = stacks.shape
        before = 0 if self._is_empty else depth
        if keeps:
            rows = [count * min(depth, before + step) for step, count in enumerate(sizes, 1)]
            starts = [0, *accumulate(rows)]
        else:
            starts = [0, sequences * depth] * (len(sizes) // 2 + 1)
            starts[len(sizes) :] = [2 * sequences * depth]
        last = stacks.clone(memory_format=torch.contiguous_format)
        fields = {
            "value_size": size,
            "actions": self._actions,
            "depth": depth,
            "rows_before": before,
            "all_kept": keeps,
            "empty": self._empty,
            "starts": torch.tensor(starts, dtype=torch.int64, device="cpu") * size,
            "first": stacks,
            "last": last,
            "stacks": empty_rows(stacks, starts[-1], size),
        }
        return fields, (last,)


def stack_readouts(
    value: torch.Tensor, actions: torch.Tensor, stacks: torch.Tensor, top_k: int, empty: float
) -> torch.Tensor:
    """Return what is read after each step of known actions, where :func:`runs_in_cpp` says so; no second derivative.

    Args:
        value: ``[sequences, time, value_size]``.
        actions: the weights of push, pop and no_op, ``[sequences, time, 3]``.
        stacks: empty ones, ``[sequences, depth, value_size]``. If ``empty`` is not 0, the weights of each step must add
            up to 1.
        top_k: number of rows that are read.
        empty: what an empty row holds.

    Returns:
        ``[sequences, time, top_k * value_size]``.
    """
    sequences, time, size = value.shape
    controls = torch.cat([value, actions], 2).transpose(0, 1).flatten(0, 1)
    read = value.new_zeros(sequences, top_k * size)
    reads = run_known(controls, [sequences] * time, read, Superposition(stacks, empty, 3)).reads
    return reads.unflatten(0, (time, sequences)).transpose(0, 1)
