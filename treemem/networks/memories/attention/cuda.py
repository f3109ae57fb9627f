"""Attention of a controller in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treemem.engines.level_library import NotNative
from treemem.engines.printer.triton_layout import power_of_2
from treemem.networks.memories.controllers.cuda import KernelMemory, Placed

_MOST_ROWS = 4096
_WIDEST = 1024


def rows_in_kernels(
    rows: torch.Tensor, lengths: torch.Tensor, weights: torch.Tensor, after: Callable[[torch.Tensor], Any]
) -> KernelMemory:
    """Return rows that a controller attends to by queries.

    Args:
        rows: ``[sequences, most, size]``.
        lengths: how many of them each sequence has, int64 ``[sequences]``.
        weights: of the last readout, ``[sequences, most]``.
        after: makes the memory's state of the weights of the last readout.

    Raises:
        NotNative: there are too many rows, or too wide ones.
    """
    _, most, size = rows.shape
    if most > _MOST_ROWS or size > _WIDEST:
        raise NotNative(f"its kernels attend to {_MOST_ROWS} rows of {_WIDEST} numbers, and there are {most} of {size}")
    return KernelMemory(
        module="treemem.networks.memories.attention.kernels",
        control_size=size,
        read_size=size,
        state=Placed(weights, (most,)),
        changed=(),
        fixed=(rows,),
        others=(lengths, most),
        sizes=(size, power_of_2(size), power_of_2(most)),
        after=after,
    )
