"""Recurrent cells over packed sequences in C++, alone or with a memory that they control."""

from __future__ import annotations

from treemem.ops.controller.run import (
    ControlledMemory,
    ControllerName,
    ControllerRun,
    ControllerState,
    ControllerWeights,
    MemorySource,
    own_gradient,
    run_controller,
    run_known,
    runs_in_cpp,
)

__all__ = [
    "ControlledMemory",
    "ControllerName",
    "ControllerRun",
    "ControllerState",
    "ControllerWeights",
    "MemorySource",
    "own_gradient",
    "run_controller",
    "run_known",
    "runs_in_cpp",
]
