"""Minimal pairs scored by the language models of a study, as a measurement of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treemem.explore.tables import markdown_table
from treemem.runs.page_tables import percent
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.measured_models import unmeasured_models
from treemem.tasks.syntactic_evaluation.generation.templates import template_pairs
from treemem.tasks.syntactic_evaluation.published import PUBLISHED
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


def pair_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the accuracies on pairs of known words, and the published ones, as a Markdown table; in percent.

    Args:
        records: of :func:`pair_records`, of models of one vocabulary.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        rows.setdefault(record["row"], []).append({score["construction"]: score for score in record["scores"]})
    table = [["construction", "pairs", *rows, *(f"{name}, published" for name in ("ON-LSTM", "LSTM"))]]
    for score in records[0]["scores"]:
        name = score["construction"]
        accuracy = [percent(scores[name]["known_accuracy"] for scores in runs) for runs in rows.values()]
        figures = [f"{100 * figure:.0f}" for figure in PUBLISHED.get(name, ())] or ["", ""]
        table.append([name, f"{score['known_pairs']:,}", *accuracy, *figures])
    return markdown_table(table)
