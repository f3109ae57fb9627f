"""Constituency: how well the trees that a model induces agree with gold trees. Nothing is trained here."""

from __future__ import annotations

from treemem.tasks.constituency.evaluation import TreeScore, evaluate_trees, induce_trees, score_trees

__all__ = ["TreeScore", "evaluate_trees", "induce_trees", "score_trees"]
