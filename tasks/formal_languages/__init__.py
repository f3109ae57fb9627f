"""Formal languages, and functions of sequences by their place in the Chomsky hierarchy (Delétang et al. 2023)."""

from __future__ import annotations

from treemem.tasks.formal_languages.data import FormalDataOptions
from treemem.tasks.formal_languages.task import FormalLanguages

__all__ = ["FormalDataOptions", "FormalLanguages"]
