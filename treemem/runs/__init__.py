"""Training and scoring of models: fit, evaluate, several seeds, recipes.

A training goes ``train_recipe`` (all networks of a recipe) and ``fit_seeds`` (the seeds of a network), or ``run_study``
(all runs of a study), then ``completed_run`` (one run and its scores), ``fit`` (its training), ``Trainer`` (its
epochs), ``Learner`` (the training step). ``RunState`` is what a checkpoint keeps of it. ``same_run`` compares
descriptions of runs.
"""

from __future__ import annotations

from treemem.data_parallel import Processes, launched_processes
from treemem.metrics.accuracy import binary_scores, class_scores
from treemem.metrics.paired import Comparison, compare
from treemem.metrics.score import mean_scores, row_score, score_row
from treemem.runs.evaluate import Evaluation, evaluate
from treemem.runs.fit import fit
from treemem.runs.loggers import Logger, TensorBoardLogger, WandbLogger
from treemem.runs.network_folder import write_results
from treemem.runs.options import TrainingOptions
from treemem.runs.recipe import Recipe, load_recipe, parse_recipe, recipe_names
from treemem.runs.recipe_run import (
    default_folder,
    gathered_rows,
    scores_by_network,
    train_recipe,
)
from treemem.runs.run import SeedsResult, StudyRun, fit_seeds
from treemem.runs.study import run_study
from treemem.runs.study_records import packed_answers, read_study, recorded_scores, right_answers
from treemem.runs.training_loop import FitResult
from treemem.runs.training_step import Learner

__all__ = [
    "Comparison",
    "Evaluation",
    "FitResult",
    "Learner",
    "Logger",
    "Processes",
    "Recipe",
    "SeedsResult",
    "StudyRun",
    "TensorBoardLogger",
    "TrainingOptions",
    "WandbLogger",
    "binary_scores",
    "class_scores",
    "compare",
    "default_folder",
    "evaluate",
    "fit",
    "fit_seeds",
    "gathered_rows",
    "launched_processes",
    "load_recipe",
    "mean_scores",
    "packed_answers",
    "parse_recipe",
    "read_study",
    "recipe_names",
    "recorded_scores",
    "right_answers",
    "row_score",
    "run_study",
    "score_row",
    "scores_by_network",
    "train_recipe",
    "write_results",
]
