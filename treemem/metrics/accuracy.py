"""Scores of predictions, for each group of examples and for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError
from treemem.metrics.score import Score


def binary_scores(predicted: NDArray[np.bool_], actual: NDArray[np.bool_], group: NDArray[np.int64]) -> list[Score]:
    """Scores of yes-or-no answers; yes is the positive class.

    Where nothing was predicted positive, precision is 0; where nothing is positive, recall is 0.

    Args:
        predicted, actual: ``[examples]``.
        group: int64 ``[examples]``.

    Returns:
        One score a group in ascending order, then one for all; that one alone where there is no example.
    """
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    def score(name: int | str, chosen: NDArray[np.bool_]) -> Score:
        count = int(chosen.sum())
        if count == 0:
            return Score(name, 0, float("nan"), float("nan"))
        answer, truth = predicted[chosen], actual[chosen]
        precision, recall, f1, _ = precision_recall_fscore_support(
            truth, answer, labels=[False, True], average=None, zero_division=0
        )
        positive = float(truth.mean())
        return Score(
            name,
            count,
            float(accuracy_score(truth, answer)),
            max(positive, 1 - positive),
            float(precision[1]),
            float(recall[1]),
            float(f1[1]),
        )

    scores = [score(int(value), group == value) for value in np.unique(group)]
    return [*scores, score("all", np.ones(len(group), bool))]


def class_scores(predicted: NDArray[np.int64], actual: NDArray[np.int64], group: NDArray[np.int64]) -> list[Score]:
    """Scores of answers that are one of several classes.

    Args:
        predicted, actual: classes from 0, ``[examples]``.
        group: int64 ``[examples]``.

    Returns:
        One score a group in ascending order, then one for all; that one alone where there is no example.
    """

    def score(name: int | str, chosen: NDArray[np.bool_]) -> Score:
        count = int(chosen.sum())
        if count == 0:
            return Score(name, 0, float("nan"), float("nan"))
        majority = np.bincount(actual[chosen]).max() / count
        return Score(name, count, float((predicted[chosen] == actual[chosen]).mean()), float(majority))

    scores = [score(int(value), group == value) for value in np.unique(group)]
    return [*scores, score("all", np.ones(len(group), bool))]


def score_row(network: str, score: Score, group: str) -> dict[str, int | float | str | None]:
    """A score as a record of a results file; ``group`` is what the task calls its groups, such as ``"depth"``."""
    return {
        "network": network,
        group: score.group,
        "examples": score.examples,
        "accuracy": score.accuracy,
        "majority": score.majority,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "deviation": score.deviation,
    }


def row_score(row: Mapping[str, Any], group: str) -> Score:
    """The score that :func:`score_row` made a record of.

    Raises:
        RecipeError: a record of another form.
    """
    names = [part.name for part in dataclasses.fields(Score) if part.name != "group"]
    absent = [name for name in ("network", group, *names) if name not in row]
    if absent:
        raise RecipeError(f"a record of scores needs the fields network, {group}, {', '.join(names)}; no {absent[0]!r}")
    return Score(row[group], **{name: row[name] for name in names})


def row_group(row: Mapping[str, Any]) -> str:
    """What the record of :func:`score_row` calls its groups.

    Raises:
        RecipeError: a record of another form.
    """
    known = {"network", *(part.name for part in dataclasses.fields(Score) if part.name != "group")}
    group = next((name for name in row if name not in known), None)
    if group is None:
        raise RecipeError(f"a record of scores has a field for its group; there are only {', '.join(row)}")
    return group
