"""Calibration: temperature scaling, and reliability tables.

Outputs are divided by a temperature before they become probabilities (Guo et al. 2017, section 4.2). Answers stay the
same; only the confidence changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError

LARGEST_TEMPERATURE = 20.0
"""The temperature is searched between this and its inverse."""

_MARGIN = 0.01  # of the logarithm: a temperature closer to an end than this counts as outside


def least_loss_temperature(loss: Callable[[float], float]) -> float | None:
    """Return the temperature with the least loss, the negative log likelihood of the labels.

    Args:
        loss: of a temperature.

    Returns:
        The temperature, at most :data:`LARGEST_TEMPERATURE`. None if no temperature is better than 1, or if all
        answers are correct, so that the loss falls with the temperature down to 0.
    """
    from scipy.optimize import minimize_scalar

    end = math.log(LARGEST_TEMPERATURE)
    minimum = minimize_scalar(lambda logarithm: loss(math.exp(logarithm)), bounds=(-end, end), method="bounded")
    if not math.isfinite(minimum.fun) or minimum.fun >= loss(1.0) or minimum.x < _MARGIN - end:
        return None
    return LARGEST_TEMPERATURE if minimum.x > end - _MARGIN else math.exp(minimum.x)


@dataclass(frozen=True)
class ReliabilityBin:
    """The examples with a confidence above ``low`` and at most ``high``.

    Attributes:
        low, high: bounds of the confidence.
        examples: number of examples.
        confidence: mean probability of the predictions; NaN without examples.
        accuracy: fraction of correct predictions; NaN without examples.
    """

    low: float
    high: float
    examples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Reliability:
    """Accuracy by confidence.

    Attributes:
        bins: in ascending order of confidence.
        expected_calibration_error: mean distance between confidence and accuracy, weighted by examples.
    """

    bins: Sequence[ReliabilityBin]
    expected_calibration_error: float

    def as_markdown(self) -> str:
        """Return the bins with examples as a table."""
        lines = ["| confidence | examples | mean confidence | accuracy |", "|---|---|---|---|"]
        lines += [
            f"| {bar.low:.2f}-{bar.high:.2f} | {bar.examples} | {bar.confidence:.3f} | {bar.accuracy:.3f} |"
            for bar in self.bins
            if bar.examples
        ]
        return "\n".join(lines) + "\n"


def reliability(probabilities: NDArray[np.float64], labels: NDArray[Any], *, num_bins: int = 10) -> Reliability:
    """Return accuracy by confidence (a reliability table).

    Args:
        probabilities: of label 1 ``[examples]``, or of each class ``[examples, classes]``.
        labels: ``[examples]``.
        num_bins: number of bins of equal width from 0 to 1.

    Raises:
        RecipeError: no examples, or another number of labels.

    Example:
        >>> found = reliability(np.array([0.9, 0.8, 0.1, 0.9]), np.array([1, 1, 0, 0]))
        >>> f"{found.expected_calibration_error:.3f}"
        '0.225'
    """
    if not len(probabilities) or len(probabilities) != len(labels):
        raise RecipeError(f"{len(probabilities)} probabilities and {len(labels)} labels; give one of each an example")
    if probabilities.ndim == 1:
        confidence, predicted = np.maximum(probabilities, 1 - probabilities), probabilities > 0.5
    else:
        confidence, predicted = probabilities.max(1), probabilities.argmax(1)
    correct = predicted == labels
    place = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    bins = []
    for number in range(num_bins):
        chosen = place == number
        count = int(chosen.sum())
        means = (float(confidence[chosen].mean()), float(correct[chosen].mean())) if count else (math.nan, math.nan)
        bins.append(ReliabilityBin(number / num_bins, (number + 1) / num_bins, count, *means))
    error = sum(bar.examples * abs(bar.confidence - bar.accuracy) for bar in bins if bar.examples) / len(labels)
    return Reliability(bins, error)
