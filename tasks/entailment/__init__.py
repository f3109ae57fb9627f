"""Textual entailment: whether a sentence follows from another one (SNLI, Bowman et al. 2015)."""

from __future__ import annotations

from treemem.tasks.entailment.task import Entailment, EntailmentDataOptions

__all__ = ["Entailment", "EntailmentDataOptions"]
