"""Logical inference: which of seven relations holds between two formulas?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not on first use: the module has the name of a function in it, and would take its place here.
from treemem.tasks.logical_inference.generation.relations import RELATIONS, relations, truth_tables

if TYPE_CHECKING:
    from treemem.tasks.logical_inference.data import LogicDataOptions
    from treemem.tasks.logical_inference.generation.generator import generate_logic
    from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES
    from treemem.tasks.logical_inference.readers import LogicPairs, read_logic, read_logic_folder
    from treemem.tasks.logical_inference.task import LogicalInference

_HOME = {
    "LogicDataOptions": "data",
    "LogicPairs": "readers",
    "LogicalInference": "task",
    "PUBLISHED_FIGURES": "published",
    "generate_logic": "generation.generator",
    "read_logic": "readers",
    "read_logic_folder": "readers",
}

__all__ = [
    "PUBLISHED_FIGURES",
    "RELATIONS",
    "LogicDataOptions",
    "LogicPairs",
    "LogicalInference",
    "generate_logic",
    "read_logic",
    "read_logic_folder",
    "relations",
    "truth_tables",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, so that a process that only reads records needs no torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
