"""Language modelling: the next word of a text, drawn from a grammar of English or read from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.language_modeling.data import LanguageDataOptions
    from treemem.tasks.language_modeling.task import LanguageModeling

__all__ = ["LanguageDataOptions", "LanguageModeling"]

TASKS = {"language_modeling": "task:LanguageModeling"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(__name__, {"data": ["LanguageDataOptions"], "task": ["LanguageModeling"]})
