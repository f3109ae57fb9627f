"""A neural stack, queue or deque with its controller in C++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import pad

from treemem.native.large_pages import empty_rows
from treemem.native.structures import Structure
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource
from treemem.networks.memories.neural_stack.equations import End


class Strengths(ControlledMemory):
    """The memory that a controller controls by values and by logits of pushes and pops.

    The results are the strengths and items after the last token of each sequence. Items that are pushed later have a
    strength of 0.

    Args:
        strength: of the items, the oldest first, ``[sequences, room]``; see :func:`with_room`.
        items: their values, ``[sequences, room, value_size]``.
        below: the places in front of the items that there are.
        filled: how many there are.
        ends: where the memory pops and is read. With two, it pushes at both.
        read_strength: how much strength is read.
    """

    source = MemorySource(
        Path(__file__).with_name("kernel.cpp"),
        Structure(
            "FIELDS",
            "int64_t value_size, room, begin, filled",  # `room` places; those filled before the first step
            "int64_t reads_top, reads_bottom",
            "double read_strength",
            "const REAL *first_strengths, *first_items",  # [sequences, room], [sequences, room, value_size]
            "REAL *strengths, *items",  # the last ones, the same
            "REAL *all_strengths",  # [num_tokens, room], see States in controller.h
        ),
        Structure(
            "MEMORY_GRADIENTS",
            # Those of the last ones, which become those of the first ones. In places that were filled later they mean
            # nothing.
            "REAL *strengths, *items",
        ),
    )

    def __init__(
        self,
        strength: torch.Tensor,
        items: torch.Tensor,
        below: int,
        filled: int,
        ends: Sequence[End],
        read_strength: float,
    ) -> None:
        self.tensors, self.control_size = (strength, items), len(ends) * (items.shape[2] + 2)
        self._places, self._ends, self._read_strength = (below, filled), ends, read_strength

    def begin(
        self, tensors: Sequence[torch.Tensor], sizes: list[int], keeps: bool
    ) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
        strength, items = tensors
        last = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
        strengths = empty_rows(strength, sum(sizes) if keeps else 0, strength.shape[1])
        begin, filled = self._places
        fields = {
            "value_size": items.shape[2],
            "room": strength.shape[1],
            "begin": begin,
            "filled": filled,
            "reads_top": "top" in self._ends,
            "reads_bottom": "bottom" in self._ends,
            "read_strength": self._read_strength,
            "first_strengths": strength,
            "first_items": items,
            "strengths": last[0],
            "items": last[1],
            "all_strengths": strengths,
        }
        return fields, (*last,)


def with_room(strength: torch.Tensor, items: torch.Tensor, below: int, above: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return strengths and items with as many more places at the bottom and at the top, of strength 0."""
    return pad(strength, (below, above)), pad(items, (0, 0, below, above))
