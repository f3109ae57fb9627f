"""Logical inference: which of seven relations holds between two formulas?"""

from __future__ import annotations

from treemem.tasks.logical_inference.generator import generate_logic
from treemem.tasks.logical_inference.published import PUBLISHED_FIGURES
from treemem.tasks.logical_inference.reader import LogicPairs, read_logic, read_logic_folder
from treemem.tasks.logical_inference.relations import RELATIONS, relations, truth_tables
from treemem.tasks.logical_inference.task import LogicalInference, LogicDataOptions

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
