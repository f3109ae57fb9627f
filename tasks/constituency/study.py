"""Induced trees of the language models of a study, as a measurement of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from treemem.runs.study_file_run import StudyResults
from treemem.tasks.constituency.evaluation import evaluate_trees
from treemem.tasks.constituency.gold import no_longer
from treemem.tasks.measured_models import unmeasured_models
from treemem.trees.formats.record_reader import SPLITS


def tree_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, longest: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run; see :mod:`treemem.tasks.measured_models`.

    ``scores`` has the fields of a :class:`~treemem.tasks.constituency.TreeScore` for each layer and each baseline, on
    the test sentences, whose trees the data of the study must have; none if the network induces no trees.

    Args:
        done, before: of the study.
        longest: leave out sentences of more words.
    """
    for run, model, first in unmeasured_models(done, before):
        forest = done.data[run.data]
        gold = no_longer(list(forest[forest.tree_data["split"] == SPLITS[2]]), longest)
        scores = evaluate_trees(model, gold) if getattr(model.encoder, "can_induce_trees", False) else []
        yield {**first, "scores": [dataclasses.asdict(score) for score in scores]}
