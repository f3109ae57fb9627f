"""ListOps: what does a nested expression over digits come to?"""

from __future__ import annotations

from treemem.tasks.listops.data import ListOpsDataOptions
from treemem.tasks.listops.evaluation import evaluate_expressions
from treemem.tasks.listops.generator import ListOpsDistribution
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
