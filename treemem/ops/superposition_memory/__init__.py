"""Stacks and lists whose next state is a mixture of what each action would make (Joulin & Mikolov 2015)."""

from __future__ import annotations

from treemem.ops.superposition_memory.fused import Controller, ControllerWeights, runs_in_cpp, stack_readouts, stack_run
from treemem.ops.superposition_memory.step import list_step, stack_step

__all__ = ["Controller", "ControllerWeights", "list_step", "runs_in_cpp", "stack_readouts", "stack_run", "stack_step"]
