"""The threshold of a probability above which the answer is yes."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError
from treemem.metrics.class_report import f1_scores

ThresholdMetric = Literal["f1", "balanced accuracy"]
"""What a threshold may be chosen for."""

_MOST_CANDIDATES = 1000


def log_odds(threshold: float) -> float:
    """Return the log odds of a threshold.

    Raises:
        RecipeError: it is not above 0 and below 1.
    """
    if not 0 < threshold < 1:
        raise RecipeError(f"a threshold must be above 0 and below 1, not {threshold!r}")
    return math.log(threshold) - math.log1p(-threshold)


def best_threshold(probability: NDArray[np.float64], actual: NDArray[np.bool_], metric: str) -> float:
    """Return the threshold with the highest mean F1 of the columns, or the highest mean balanced accuracy.

    Candidates are 0.5 and the means of neighbouring probabilities, or 1000 quantiles of more. Of equally good ones the
    nearest to 0.5 is chosen.

    Args:
        probability: of yes, ``[examples, columns]``.
        actual: whether yes is true, ``[examples, columns]``.
        metric: ``"f1"`` or ``"balanced accuracy"``.
    """
    values = np.unique(probability)
    candidates = (values[1:] + values[:-1]) / 2
    if len(candidates) > _MOST_CANDIDATES:
        candidates = np.quantile(candidates, np.linspace(0, 1, _MOST_CANDIDATES))
    candidates = np.append(candidates, 0.5)
    candidates = candidates[(candidates > 0) & (candidates < 1)]
    quality = np.array([_quality(probability > threshold, actual, metric) for threshold in candidates.tolist()])
    best = candidates[quality >= quality.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


def _quality(predicted: NDArray[np.bool_], actual: NDArray[np.bool_], metric: str) -> float:
    """Return the mean of a metric over the columns of answers ``[examples, columns]``."""
    correct, answered, positive = (predicted & actual).sum(0), predicted.sum(0), actual.sum(0)
    if metric == "f1":
        return float(np.nan_to_num(f1_scores(correct, answered, positive)).mean())
    negative = len(actual) - positive
    false = answered - correct
    return float((correct / np.maximum(positive, 1) + (negative - false) / np.maximum(negative, 1)).mean()) / 2
