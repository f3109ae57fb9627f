"""Registers with their controller in C++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from treemem.native.large_pages import empty_rows
from treemem.native.structures import Structure
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource


class RegisterForm(NamedTuple):
    """What registers do; see :class:`treemem.nn.RegisterMemory`.

    Attributes:
        value_size: width of a content.
        key_size: width of a key in front of the content; 0 if the content is the key.
        prefix, rows: how many rows are only read, and how many are written.
        cosine: whether keys are compared by the cosine, with a strength.
        location: whether there is a gate, shifts and sharpening.
        max_shift: farthest shift.
        erases: whether writing erases and adds.
        hard: whether the row of the largest weight alone counts.
    """

    value_size: int
    key_size: int
    prefix: int
    rows: int
    cosine: bool
    location: bool
    max_shift: int
    erases: bool
    hard: bool

    @property
    def control_size(self) -> int:
        """How many numbers control the memory."""
        address = (self.key_size or self.value_size) + self.cosine + self.location * (2 * self.max_shift + 3)
        width = self.key_size + self.value_size
        return self.value_size + 2 * address + self.key_size + self.erases * width


class Registers(ControlledMemory):
    """Registers that a controller addresses and writes, without ``"reinforce"``.

    The result is the state after the last token of each sequence.

    Args:
        state: the rows that are written, then the weights of reading all rows and of writing, ``[sequences, state]``.
        read_only: rows that are only read, ``[sequences, prefix, width]``.
        form: what the registers do.
    """

    source = MemorySource(
        Path(__file__).with_name("kernel.cpp"),
        Structure(
            "FIELDS",
            f"int64_t {', '.join(RegisterForm._fields)}",
            "const REAL *first, *read_only",  # [sequences, state], [sequences, prefix, width]
            "REAL *last, *all",  # [sequences, state], [num_tokens, state], see States in controller.h
        ),
        Structure(
            "MEMORY_GRADIENTS",
            "REAL *state, *read_only",  # that of the last state, which becomes that of the first one
        ),
    )

    def __init__(self, state: torch.Tensor, read_only: torch.Tensor, form: RegisterForm) -> None:
        self.tensors, self.control_size, self._form = (state, read_only), form.control_size, form

    def begin(
        self, tensors: Sequence[torch.Tensor], sizes: list[int], keeps: bool
    ) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
        state, read_only = tensors
        last = state.clone(memory_format=torch.contiguous_format)
        kept = empty_rows(state, sum(sizes) if keeps else 0, state.shape[1])
        return {**self._form._asdict(), "first": state, "read_only": read_only, "last": last, "all": kept}, (last,)
