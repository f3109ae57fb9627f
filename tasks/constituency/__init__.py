"""Constituency: how well the trees that a model induces agree with gold trees. Nothing is trained here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.constituency.evaluation import TreeScore, evaluate_trees, induce_trees, score_trees

__all__ = ["TreeScore", "evaluate_trees", "induce_trees", "score_trees"]

__getattr__ = lazy_attributes(__name__, {"evaluation": ["TreeScore", "evaluate_trees", "induce_trees", "score_trees"]})
