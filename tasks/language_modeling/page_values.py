"""Values of the page of results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from treemem.runs.study_records import recorded_scores

_Records = Sequence[Mapping[str, Any]]


def mean(runs: _Records, split: str, metric: str) -> str:
    """Return mean ± deviation of a metric of some runs on a split; empty if they do not have it."""
    values = [recorded_scores(run, split)[-1].metrics.get(metric) for run in runs]
    known = [value for value in values if value is not None]
    if not known:
        return ""
    deviation = f" ± {statistics.stdev(known):.2f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.2f}{deviation}"
