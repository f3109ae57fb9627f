"""Explanations: how much each node and subtree of an example speaks for an answer of a model."""

from __future__ import annotations

from treemem.attribution.explain_model import METHODS, Method, check_explainable, explain, explain_forest
from treemem.attribution.explanation import Explanation

__all__ = ["METHODS", "Explanation", "Method", "check_explainable", "explain", "explain_forest"]
