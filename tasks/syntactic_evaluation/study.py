"""Minimal pairs scored by the language models of a study, as a measurement of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.runs.study_file_run import StudyResults
from treemem.tasks.measured_models import unmeasured_models
from treemem.tasks.syntactic_evaluation.generation.templates import template_pairs
from treemem.tasks.syntactic_evaluation.scoring import pairs_of_grammar, score_pairs


def pair_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, count: int | None = None, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run; see :mod:`treemem.tasks.measured_models`.

    ``scores`` has the fields of a :class:`~treemem.tasks.syntactic_evaluation.ConstructionScore` for each construction
    and for all.

    Args:
        done, before: of the study.
        count, seed: of pairs of the grammar that the models were trained on, see
            :func:`~treemem.tasks.syntactic_evaluation.scoring.pairs_of_grammar`. None: the pairs of Marvin & Linzen
            2018, whose sentences end without a stop, as those of a text without punctuation.
    """
    for _, model, first in unmeasured_models(done, before):
        scores = score_pairs(model, template_pairs() if count is None else pairs_of_grammar(model, count, seed))
        yield {**first, "scores": [score._asdict() for score in scores]}
