"""A neural stack, queue or deque with its controller in C++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import pad

from treemem.ops.controller import ControlledMemory, Fields, own_gradient
from treemem.ops.large_pages import empty_rows
from treemem.ops.strength_memory.ends import End


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

    source = Path(__file__).with_name("fused.cpp")

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
    ) -> tuple[Fields, tuple[torch.Tensor, ...]]:
        strength, items = tensors
        last = [each.clone(memory_format=torch.contiguous_format) for each in tensors]
        strengths = empty_rows(strength, sum(sizes) if keeps else 0, strength.shape[1])
        numbers = (items.shape[2], strength.shape[1], *self._places, *(end in self._ends for end in ("top", "bottom")))
        read_strength = strength.new_full((1,), self._read_strength)
        return Fields(numbers, (read_strength, strength, items, *last, strengths)), (*last,)

    def gradients(
        self, tensors: Sequence[torch.Tensor], of_results: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        return [own_gradient(gradient, each) for gradient, each in zip(of_results, tensors, strict=True)]


def with_room(strength: torch.Tensor, items: torch.Tensor, below: int, above: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return strengths and items with as many more places at the bottom and at the top, of strength 0."""
    return pad(strength, (below, above)), pad(items, (0, 0, below, above))
