"""Language modelling: the next word of a text, drawn from a grammar of English or read from files."""

from __future__ import annotations

from treemem.tasks.language_modeling.data import LanguageDataOptions
from treemem.tasks.language_modeling.task import LanguageModeling

__all__ = ["LanguageDataOptions", "LanguageModeling"]
