"""Stacks, queues and deques whose items have strengths (Grefenstette et al. 2015)."""

from __future__ import annotations

from treemem.ops.strength_memory.ends import End, popped, read_weights
from treemem.ops.strength_memory.fused import Strengths, with_room
from treemem.ops.strength_memory.naive import naive_run
from treemem.ops.strength_memory.sequence import run_sequence
from treemem.ops.strength_memory.step import StrengthState, strength_step

__all__ = [
    "End",
    "StrengthState",
    "Strengths",
    "naive_run",
    "popped",
    "read_weights",
    "run_sequence",
    "strength_step",
    "with_room",
]
