"""ListOps: what does a nested expression over digits come to?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.listops.data import ListOpsDataOptions
    from treemem.tasks.listops.generation.evaluation import evaluate_expressions
    from treemem.tasks.listops.generation.generator import ListOpsDistribution
    from treemem.tasks.listops.published import PUBLISHED_FIGURES
    from treemem.tasks.listops.readers import read_listops
    from treemem.tasks.listops.task import ListOps

__all__ = [
    "PUBLISHED_FIGURES",
    "ListOps",
    "ListOpsDataOptions",
    "ListOpsDistribution",
    "evaluate_expressions",
    "read_listops",
]

TASKS = {"listops": "task:ListOps"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "task": ["ListOps"],
        "data": ["ListOpsDataOptions"],
        "generation.generator": ["ListOpsDistribution"],
        "published": ["PUBLISHED_FIGURES"],
        "generation.evaluation": ["evaluate_expressions"],
        "readers": ["read_listops"],
    },
)
