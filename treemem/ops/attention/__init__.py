"""Attention over the rows of a memory that is only read."""

from __future__ import annotations

from treemem.ops.attention.fused import AttendedRows
from treemem.ops.attention.step import additive_scores, attend, dot_scores

__all__ = ["AttendedRows", "additive_scores", "attend", "dot_scores"]
