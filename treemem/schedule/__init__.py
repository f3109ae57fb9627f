"""How a batch of trees will run: equal subtrees, rows in the order of their levels, batches and their loader."""

from __future__ import annotations

from treemem.schedule.loader import TreeLoader
from treemem.schedule.schedule import Level, Schedule, Segment
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch

__all__ = ["Level", "Schedule", "Segment", "SubtreeIndex", "TreeBatch", "TreeLoader"]
