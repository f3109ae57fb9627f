"""Attention of a controller in C++."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from treemem.native.large_pages import empty_rows
from treemem.native.structures import Structure
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource


class AttendedRows(ControlledMemory):
    """Rows that the controller attends to: it reads ``sum_i softmax(q . m_i) m_i`` (Luong et al. 2015).

    The control is the query ``q``. What is read after the last token of a sequence has no use and is 0.

    Args:
        rows: ``m`` of each sequence, ``[sequences, most, read_size]``.
        lengths: how many rows each sequence has, at most all, int64 ``[sequences]`` on the CPU.
    """

    source = MemorySource(
        Path(__file__).with_name("kernel.cpp"),
        Structure(
            "FIELDS",
            "int64_t most_rows",  # that a sequence attends to
            "const int64_t *lengths",  # [sequences], how many rows each attends to
            "const REAL *rows",  # [sequences, most_rows, read_size]
            "REAL *weights",  # [num_tokens, most_rows]
        ),
        Structure(
            "MEMORY_GRADIENTS",
            "REAL *rows",  # [sequences, most_rows, read_size], 0
        ),
    )

    def __init__(self, rows: torch.Tensor, lengths: torch.Tensor) -> None:
        self.tensors, self.control_size = (rows,), rows.shape[2]
        self._lengths = lengths.to(torch.int64).contiguous()

    def begin(
        self, tensors: Sequence[torch.Tensor], sizes: list[int], keeps: bool
    ) -> tuple[dict[str, Any], tuple[torch.Tensor, ...]]:
        (rows,) = tensors
        weights = empty_rows(rows, sum(sizes), rows.shape[1])
        return {"most_rows": rows.shape[1], "lengths": self._lengths, "rows": rows, "weights": weights}, ()
