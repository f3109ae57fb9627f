"""Accuracy, precision, recall and F1 by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treemem.metrics.score import Score, scores_by_group


def binary_scores(predicted: NDArray[np.bool_], actual: NDArray[np.bool_], group: NDArray[np.int64]) -> list[Score]:
    """Return accuracy, majority, precision, recall and F1 of yes-or-no answers; yes is the positive class.

    Without a positive prediction precision is 0; without a positive example recall is 0; without either F1 is 0.

    Args:
        predicted, actual: ``[examples]``.
        group: int64 ``[examples]``.

    Returns:
        One score for each group in ascending order, then one for all.
    """

    def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
        answer, truth = predicted[chosen], actual[chosen]
        right, answered, positive = int((answer & truth).sum()), int(answer.sum()), int(truth.sum())
        return {
            "accuracy": float((answer == truth).mean()),
            "majority": max(positive, len(truth) - positive) / len(truth),
            "precision": right / max(1, answered),
            "recall": right / max(1, positive),
            "f1": 2 * right / max(1, answered + positive),
        }

    return scores_by_group(group, metrics)


def class_scores(predicted: NDArray[np.int64], actual: NDArray[np.int64], group: NDArray[np.int64]) -> list[Score]:
    """Return accuracy and majority of answers that are one of several classes.

    Args:
        predicted, actual: classes from 0, ``[examples]``.
        group: int64 ``[examples]``.

    Returns:
        One score for each group in ascending order, then one for all.
    """

    def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
        counts = np.bincount(actual[chosen])
        return {
            "accuracy": float((predicted[chosen] == actual[chosen]).mean()),
            "majority": float(counts.max() / counts.sum()),
        }

    return scores_by_group(group, metrics)


def perplexity_scores(
    negative_log_likelihood: NDArray[np.float64], tokens: NDArray[np.int64], group: NDArray[np.int64]
) -> list[Score]:
    """Return the perplexity of each group: the exponential of the mean negative log likelihood of its tokens.

    Args:
        negative_log_likelihood: sum over the tokens of each example, in nats, ``[examples]``.
        tokens: number of tokens of each example, ``[examples]``.
        group: int64 ``[examples]``.
    """

    def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
        mean = negative_log_likelihood[chosen].sum() / max(1, int(tokens[chosen].sum()))
        return {"perplexity": float(np.exp(mean)), "loss": float(mean)}

    return scores_by_group(group, metrics)
