"""What others reached on the published data: the figures that results are printed beside."""

from __future__ import annotations

from treemem.metrics.score import PublishedFigure

SOURCE = "Shen et al. 2019, figure 3a"
"""Trained on 90,000 expressions, tested on 10,000 of the same distribution; states of 128 numbers."""
EARLIER_SOURCE = f"Nangia & Bowman 2018, in {SOURCE}"

_ACCURACY: tuple[tuple[str, float, float | None, str], ...] = (
    ("LSTM", 71.5, 1.5, EARLIER_SOURCE),
    ("RL-SPINN", 60.7, 2.6, EARLIER_SOURCE),
    ("Gumbel Tree-LSTM", 57.6, 2.9, EARLIER_SOURCE),
    ("Transformer", 57.4, 0.4, SOURCE),
    ("Universal Transformer", 71.5, 7.8, SOURCE),
    ("Havrylov et al. 2019 (PPO)", 99.2, 0.5, SOURCE),
    ("Ordered Memory", 99.97, 0.014, SOURCE),
    ("Ordered Memory, Tree-RNN cell", 63.1, None, SOURCE),
)
_PARSING_F1: tuple[tuple[str, float, str], ...] = (
    ("RL-SPINN", 71.1, EARLIER_SOURCE),
    ("Gumbel Tree-LSTM", 57.3, EARLIER_SOURCE),
    ("Ordered Memory", 100.0, SOURCE),
)


def _figures() -> tuple[PublishedFigure, ...]:
    def fraction(percent: float) -> float:
        return round(percent / 100, 6)

    accuracy = [
        PublishedFigure(
            network, "test", "accuracy", fraction(value), None if spread is None else fraction(spread), source
        )
        for network, value, spread, source in _ACCURACY
    ]
    parsing = [
        PublishedFigure(network, "test", "parsing f1", fraction(value), None, source)
        for network, value, source in _PARSING_F1
    ]
    return (*accuracy, *parsing)


PUBLISHED_FIGURES = _figures()
