"""Figures of Delétang et al. 2023, and the summaries of a study that stand beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from treemem.metrics.score import Score
from treemem.runs.page_tables import percent
from treemem.runs.study_records import recorded_scores
from treemem.tasks.formal_languages.languages import Kind, language

NETWORKS = ("RNN", "Stack-RNN", "Tape-RNN", "Transformer", "LSTM")
SCORES: dict[str, tuple[float, ...]] = {
    "modular_arithmetic": (100.0, 100.0, 100.0, 24.2, 100.0),
    "parity": (100.0, 100.0, 100.0, 52.0, 100.0),
    "stack_manipulation": (56.0, 100.0, 100.0, 57.5, 59.1),
    "reverse_string": (62.0, 100.0, 100.0, 62.3, 60.9),
    "duplicate_string": (50.3, 52.8, 100.0, 52.8, 57.6),
    "odds_first": (51.0, 51.9, 100.0, 52.8, 55.6),
}
"""Mean accuracy in percent over lengths beyond 40 to 100, one figure for each of ``NETWORKS``.

Those of Delétang et al. 2023 that Xu et al., "DeltaFormer" (2025), quote.
"""


def _tested(record: Mapping[str, Any], above: int, most: int) -> list[Score]:
    scores = recorded_scores(record, "test")
    return [
        score for score in scores if isinstance(score.group, int) and above < score.group <= most and score.examples
    ]


def between(records: Sequence[Mapping[str, Any]], above: int, most: int) -> str:
    """Return the accuracy at lengths from ``above + 1`` to ``most``, mean ± standard deviation, in percent.

    That of symbols for a function, that of sequences for a language.
    """
    values = []
    is_function = language(records[0]["task"]["kind"], 2).blanks is not None
    metric = "symbol accuracy" if is_function else "sequence accuracy"
    for record in records:
        scores = _tested(record, above, most)
        correct = sum((score.metrics[metric] or 0) * score.examples for score in scores)
        values.append(correct / sum(score.examples for score in scores))
    return percent(values)


def worst_length(records: Sequence[Mapping[str, Any]], most: int) -> str:
    """Return the accuracy at the worst length up to ``most``, of the best run, in percent."""
    return percent([max(min(score.metrics["worst length"] or 0 for score in _tested(run, 0, most)) for run in records)])


def kinds_by_level() -> dict[str, list[str]]:
    """Return the kinds of each level of the Chomsky hierarchy."""
    by_level: dict[str, list[str]] = {}
    for kind in get_args(Kind):
        by_level.setdefault(language(kind, 2).level, []).append(kind)
    return by_level


def published(kind: str, network: str) -> str:
    """Return the published score of a network, empty if there is none here."""
    return f"{SCORES[kind][NETWORKS.index(network)]:.1f}" if kind in SCORES else ""
