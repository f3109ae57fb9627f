"""Published figures on SCAN."""

from __future__ import annotations

from treemem.metrics.score import PublishedFigure

SOURCE = "Lake & Baroni 2018"
OVERALL, BEST = "LSTM, 2 layers", "the best network of the split"
"""Their network that was best on all splits together, with two layers of 200, and their best one on each split."""

_PERCENT = ((OVERALL, "length", 13.8), (BEST, "length", 20.8), (OVERALL, "jump", 0.08), (BEST, "jump", 1.2))

PUBLISHED = tuple(
    PublishedFigure.of_percent(network, f"test, {split}", "exact match", value, None, SOURCE)
    for network, split, value in _PERCENT
)
