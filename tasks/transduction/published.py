"""What the lecture says of each memory on each kind of pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treemem.runs.study_records import recorded_scores

SOURCE = 'E. Grefenstette, "Beyond sequence to sequence with augmented RNNs", lecture of 2016'
MEMORIES = ("Stack", "Queue", "DeQue", "Deep LSTM")
VERDICTS: dict[str, tuple[str, ...]] = {
    "copy": ("poor", "solved", "solved", "poor"),
    "reversal": ("solved", "poor", "solved", "poor"),
    "svo_sov": ("solved", "solved", "solved", "converges"),
    "gender": ("converges", "solved", "solved", "converges"),
}
"""``"solved"``: kept up to twice the longest training length. One verdict for each of ``MEMORIES``."""

SOLVED = 0.99
"""The coarse accuracy in every group of lengths from which a run counts as a solution."""
CONVERGED = 0.5
"""The coarse accuracy over all lengths from which a run counts as converged."""


def best_on_validation(rows: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str]) -> str:
    """Return the row whose runs have the highest mean coarse accuracy on validation; of equal ones the first.

    Args:
        rows: the records of each row of a study.
        names: of the rows that compete. Those without a record do not.

    Returns:
        The name of the row, empty if none has a record.
    """

    def accuracy(name: str) -> float:
        scores = [recorded_scores(record, "validation")[-1].metrics["coarse accuracy"] or 0 for record in rows[name]]
        return sum(scores) / len(scores)

    return max((name for name in names if rows.get(name)), key=accuracy, default="")


def solved(records: Sequence[Mapping[str, Any]]) -> int:
    """Return how many runs of a study solve their test, in every group of eight lengths."""
    return sum(
        all(
            (score.metrics["coarse accuracy"] or 0) >= SOLVED
            for score in recorded_scores(record, "test")
            if score.examples
        )
        for record in records
    )


def is_met(verdict: str, records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the runs of a network agree with the lecture's verdict on it.

    ``"solved"``: every run solves the test. ``"poor"``: no run does. ``"converges"``: every run is right on at least
    half of the test; the lecture does not define it.
    """
    if verdict == "poor":
        return solved(records) == 0
    if verdict == "solved":
        return solved(records) == len(records)
    coarse = (recorded_scores(record, "test")[-1].metrics["coarse accuracy"] or 0 for record in records)
    return min(coarse) >= CONVERGED
