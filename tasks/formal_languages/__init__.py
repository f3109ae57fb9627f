"""Formal languages, and functions of sequences by their place in the Chomsky hierarchy (Delétang et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.formal_languages.data import FormalDataOptions
    from treemem.tasks.formal_languages.task import FormalLanguages

__all__ = ["FormalDataOptions", "FormalLanguages"]

TASKS = {"formal_languages": "task:FormalLanguages"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"data": ["FormalDataOptions"], "task": ["FormalLanguages"]})
