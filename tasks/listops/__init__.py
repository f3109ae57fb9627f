"""ListOps: what does a nested expression over digits come to?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treemem.tasks.listops.data import ListOpsDataOptions
    from treemem.tasks.listops.generation.evaluation import evaluate_expressions
    from treemem.tasks.listops.generation.generator import ListOpsDistribution
    from treemem.tasks.listops.published import PUBLISHED_FIGURES
    from treemem.tasks.listops.readers import read_listops
    from treemem.tasks.listops.task import ListOps

_HOME = {
    "ListOps": "task",
    "ListOpsDataOptions": "data",
    "ListOpsDistribution": "generation.generator",
    "PUBLISHED_FIGURES": "published",
    "evaluate_expressions": "generation.evaluation",
    "read_listops": "readers",
}

__all__ = [
    "PUBLISHED_FIGURES",
    "ListOps",
    "ListOpsDataOptions",
    "ListOpsDistribution",
    "evaluate_expressions",
    "read_listops",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, so that a process that only reads records needs no torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
