"""Induced trees of the language models of a study, as a measurement of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from treemem.runs.study_file import StudyResults
from treemem.tasks.constituency.evaluation import evaluate_trees
from treemem.tasks.induced_trees import recorded_model
from treemem.trees.record_reader import SPLITS


def tree_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run whose network induces trees, if there is none with its weights.

    A record has the fields ``run``, ``row``, ``training`` with the seed, ``weights`` (their hash), and ``scores``: the
    fields of a :class:`~treemem.tasks.constituency.TreeScore` for each layer and each baseline, on the test sentences.

    Args:
        done: the study, whose data have the trees of sentences.
        before: the records so far.

    Raises:
        RecipeError: the folder of a run is gone, or has other weights than its record.
    """
    known = {record["run"]: record["weights"] for record in before}
    for run, record in zip(done.runs, done.records, strict=True):
        if known.get(run.name) == record["weights"]:
            continue
        model = recorded_model(done.folder, record)
        if not getattr(model.encoder, "can_induce_trees", False):
            continue
        forest = done.data[run.data]
        gold = list(forest[forest.tree_data["split"] == SPLITS[2]])
        yield {
            "run": run.name,
            "row": run.row,
            "training": {"seed": run.training.seed},
            "weights": record["weights"],
            "scores": [dataclasses.asdict(score) for score in evaluate_trees(model, gold)],
        }
