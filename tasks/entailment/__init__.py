"""Textual entailment: whether a sentence follows from another one (SNLI, Bowman et al. 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.entailment.task import Entailment, EntailmentDataOptions

__all__ = ["Entailment", "EntailmentDataOptions"]

TASKS = {"entailment": "task:Entailment"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"task": ["Entailment", "EntailmentDataOptions"]})
