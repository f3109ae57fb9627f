"""Sequence transduction: copy, reversal, bigram flip and two synchronous grammars (Grefenstette et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.transduction.data import TransductionDataOptions
    from treemem.tasks.transduction.task import Transduction

__all__ = ["Transduction", "TransductionDataOptions"]

TASKS = {"transduction": "task:Transduction"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"task": ["Transduction"], "data": ["TransductionDataOptions"]})
