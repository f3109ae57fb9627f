"""Sequence transduction: copy, reversal, bigram flip and two synchronous grammars (Grefenstette et al. 2015)."""

from __future__ import annotations

from treemem.tasks.transduction.data import TransductionDataOptions
from treemem.tasks.transduction.task import Transduction

__all__ = ["Transduction", "TransductionDataOptions"]
