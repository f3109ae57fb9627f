"""Minimal pairs scored by the language models of a study, as a measurement of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.runs.study_file import StudyResults
from treemem.tasks.induced_trees import recorded_model
from treemem.tasks.syntactic_evaluation.scoring import pairs_of_grammar, score_pairs


def pair_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, count: int, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run, if there is none with its weights.

    A record has the fields ``run``, ``row``, ``training`` with the seed, ``weights`` (their hash), and ``scores``: the
    fields of a :class:`~treemem.tasks.syntactic_evaluation.ConstructionScore` for each construction and for all.

    Args:
        done: the study, whose runs are trained on the grammar.
        before: the records so far.
        count, seed: of the pairs, see :func:`~treemem.tasks.syntactic_evaluation.scoring.pairs_of_grammar`.

    Raises:
        RecipeError: the folder of a run is gone, or has other weights than its record.
    """
    known = {record["run"]: record["weights"] for record in before}
    for run, record in zip(done.runs, done.records, strict=True):
        if known.get(run.name) == record["weights"]:
            continue
        model = recorded_model(done.folder, record)
        yield {
            "run": run.name,
            "row": run.row,
            "training": {"seed": run.training.seed},
            "weights": record["weights"],
            "scores": [score._asdict() for score in score_pairs(model, pairs_of_grammar(model, count, seed))],
        }
