"""Targeted syntactic evaluation: does a language model prefer grammatical sentences? Nothing is trained here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.syntactic_evaluation.generation.templates import template_pairs
    from treemem.tasks.syntactic_evaluation.readers import read_pairs
    from treemem.tasks.syntactic_evaluation.scoring import ConstructionScore, score_pairs

__all__ = ["ConstructionScore", "read_pairs", "score_pairs", "template_pairs"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "scoring": ["ConstructionScore", "score_pairs"],
        "readers": ["read_pairs"],
        "generation.templates": ["template_pairs"],
    },
)
