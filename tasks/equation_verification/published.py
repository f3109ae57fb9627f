"""Published scores on the published data, shown beside ours."""

from __future__ import annotations

from itertools import product

from treemem.metrics.score import PublishedFigure

SOURCE = "Arabshahi et al. 2020, table 2"
"""Trained on depth 1-7, tested on depth 8-13 of 41,894 equations; mean and deviation of three seeds."""

_COLUMNS = tuple(product(("train", "validation", "test"), ("accuracy", "precision", "recall")))

_PERCENT: dict[str, tuple[float, ...]] = {
    "Tree-RNN": (96.03, 95.36, 97.94, 89.11, 87.79, 93.84, 80.67, 82.63, 79.29),
    "Tree-RNN+stack": (95.92, 95.74, 97.32, 88.88, 87.37, 93.95, 78.02, 81.28, 74.74),
    "Tree-RNN+stack+no-op": (95.86, 96.40, 96.49, 88.44, 87.21, 93.29, 78.87, 83.23, 74.10),
    "Tree-LSTM": (99.34, 99.40, 99.47, 93.86, 92.67, 96.82, 83.64, 86.96, 80.45),
    "Tree-LSTM+stack": (99.23, 99.19, 99.49, 93.31, 92.36, 96.15, 85.24, 85.13, 86.59),
    "Tree-LSTM+stack+normalize": (98.76, 98.59, 99.29, 93.32, 92.23, 96.33, 84.44, 85.49, 84.16),
    "Tree-LSTM+stack+normalize+no-op": (98.34, 98.13, 99.04, 93.84, 92.60, 96.87, 86.01, 86.27, 86.78),
}
_TEST_DEVIATION: dict[str, tuple[float, ...]] = {
    "Tree-RNN": (0.92, 0.07, 2.26),
    "Tree-RNN+stack": (0.12, 1.75, 2.29),
    "Tree-RNN+stack+no-op": (1.10, 0.95, 3.91),
    "Tree-LSTM": (1.23, 0.89, 3.83),
    "Tree-LSTM+stack": (0.25, 0.59, 0.86),
    "Tree-LSTM+stack+normalize": (1.77, 0.55, 3.38),
    "Tree-LSTM+stack+normalize+no-op": (0.74, 1.14, 2.70),
}
MAJORITY_CLASS = {"train": 0.5812, "validation": 0.5667, "test": 0.5171}
"""Accuracy of the commoner label on the published data."""


PUBLISHED_FIGURES = (
    *(
        PublishedFigure.of_percent(network, *column, value, deviation, SOURCE)
        for network, values in _PERCENT.items()
        for column, value, deviation in zip(_COLUMNS, values, (*[None] * 6, *_TEST_DEVIATION[network]), strict=True)
    ),
    *(
        PublishedFigure("majority class", split, "accuracy", value, None, SOURCE)
        for split, value in MAJORITY_CLASS.items()
    ),
)
