"""Reading: which entity of a document a query leaves out (Hermann et al. 2015)."""

from __future__ import annotations

from treemem.tasks.reading.data import ReadingDataOptions
from treemem.tasks.reading.task import Reading

__all__ = ["Reading", "ReadingDataOptions"]
