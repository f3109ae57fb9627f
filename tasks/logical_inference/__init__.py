"""Logical inference: which of seven relations holds between two formulas?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.logical_inference.data import LogicDataOptions
    from treemem.tasks.logical_inference.generation.generator import generate_logic
    from treemem.tasks.logical_inference.generation.relations import RELATIONS, relations, truth_tables
    from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES
    from treemem.tasks.logical_inference.readers import LogicPairs, read_logic, read_logic_folder
    from treemem.tasks.logical_inference.task import LogicalInference

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

TASKS = {"logical_inference": "task:LogicalInference"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "data": ["LogicDataOptions"],
        "readers": ["LogicPairs", "read_logic", "read_logic_folder"],
        "task": ["LogicalInference"],
        "published": ["PUBLISHED_FIGURES"],
        "generation.relations": ["RELATIONS", "relations", "truth_tables"],
        "generation.generator": ["generate_logic"],
    },
)
