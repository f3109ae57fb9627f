"""Stacks, queues and deques whose items have strengths (Grefenstette et al. 2015), without a controller."""

from __future__ import annotations

from treemem.ops.strength_memory.ends import End, popped, read_weights
from treemem.ops.strength_memory.items import Items, appended, read
from treemem.ops.strength_memory.naive import naive_run
from treemem.ops.strength_memory.sequence import run_sequence

__all__ = ["End", "Items", "appended", "naive_run", "popped", "read", "read_weights", "run_sequence"]
