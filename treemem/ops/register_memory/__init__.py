"""Rows of registers that are read and written by weights over rows (Graves et al. 2014)."""

from __future__ import annotations

from treemem.ops.register_memory.addressing import (
    Similarity,
    content_weights,
    interpolated,
    location_weights,
    sharpened,
    shifted,
)
from treemem.ops.register_memory.fused import RegisterForm, Registers
from treemem.ops.register_memory.hard import ChosenRow, chosen_row, sampled_row, straight_through
from treemem.ops.register_memory.rows import convex_write, erase_and_add, read_rows, with_prefix

__all__ = [
    "ChosenRow",
    "RegisterForm",
    "Registers",
    "Similarity",
    "chosen_row",
    "content_weights",
    "convex_write",
    "erase_and_add",
    "interpolated",
    "location_weights",
    "read_rows",
    "sampled_row",
    "sharpened",
    "shifted",
    "straight_through",
    "with_prefix",
]
