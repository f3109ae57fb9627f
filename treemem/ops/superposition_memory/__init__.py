"""Stacks and lists whose next state is a mixture of what each action would make (Joulin & Mikolov 2015)."""

from __future__ import annotations

from treemem.ops.superposition_memory.fused import Superposition, stack_readouts
from treemem.ops.superposition_memory.step import list_step, stack_step

__all__ = ["Superposition", "list_step", "stack_readouts", "stack_step"]
