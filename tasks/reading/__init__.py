"""Reading: which entity of a document a query leaves out (Hermann et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.reading.data import ReadingDataOptions
    from treemem.tasks.reading.task import Reading

__all__ = ["Reading", "ReadingDataOptions"]

TASKS = {"reading": "task:Reading"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"task": ["Reading"], "data": ["ReadingDataOptions"]})
