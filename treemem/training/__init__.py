"""Training and scoring of models: fit, evaluate, several seeds, recipes."""

from __future__ import annotations

from treemem.training.evaluate import Evaluation, evaluate
from treemem.training.fit import FitResult, fit
from treemem.training.metrics import binary_scores, row_score, score_row
from treemem.training.options import TrainingOptions
from treemem.training.recipes import Recipe, load_recipe, parse_recipe, recipe_names
from treemem.training.seeds import SeedsResult, fit_seeds, mean_scores

__all__ = [
    "Evaluation",
    "FitResult",
    "Recipe",
    "SeedsResult",
    "TrainingOptions",
    "binary_scores",
    "evaluate",
    "fit",
    "fit_seeds",
    "load_recipe",
    "mean_scores",
    "parse_recipe",
    "recipe_names",
    "row_score",
    "score_row",
]
