"""Registers in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treemem.engines.level_library import NotNative
from treemem.engines.printer.triton_layout import power_of_2
from treemem.networks.memories.controllers.cuda import KernelMemory, Placed
from treemem.networks.memories.registers.native import RegisterForm

_LARGEST = 8192


def registers_in_kernels(
    state: torch.Tensor, read_only: torch.Tensor, form: RegisterForm, after: Callable[[torch.Tensor], Any]
) -> KernelMemory:
    """Return registers that a controller addresses and writes, without ``"reinforce"``.

    Args:
        state: the rows that are written, then the weights of reading all rows and of writing, ``[sequences, state]``.
        read_only: rows that are only read, ``[sequences, prefix, width]``.
        form: what the registers do.
        after: makes the memory's state of what ``state`` has become.

    Raises:
        NotNative: they are too large.
    """
    width, rows = power_of_2(form.key_size + form.value_size), power_of_2(form.prefix + form.rows)
    if width * rows > _LARGEST:
        raise NotNative(
            f"its kernels take rows of up to {_LARGEST} numbers together, and {form.prefix + form.rows} rows of "
            f"{form.key_size + form.value_size} numbers take {width * rows}"
        )
    blocks = width, rows, power_of_2(form.rows), power_of_2(2 * form.max_shift + 1)
    return KernelMemory(
        module="treemem.networks.memories.registers.kernels",
        control_size=form.control_size,
        read_size=form.value_size,
        state=Placed(state, (state.shape[1],)),
        changed=(),
        fixed=(read_only,),
        others=(),
        sizes=(*form, *blocks),
        after=after,
    )
