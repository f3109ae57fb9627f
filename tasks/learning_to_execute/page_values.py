"""Summaries of a study for its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treemem.runs.page_tables import percent
from treemem.runs.study_records import recorded_scores


def at_level(records: Sequence[Mapping[str, Any]], level: int, metric: str = "digit accuracy") -> str:
    """Return a metric of the test programs of a level, mean ± standard deviation over runs, in percent."""
    return percent(
        score.metrics[metric] for record in records for score in recorded_scores(record, "test") if score.group == level
    )
