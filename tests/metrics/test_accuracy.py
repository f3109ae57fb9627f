from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from treemem.metrics.accuracy import binary_scores, class_scores
from treemem.metrics.score import Score


def binary(group: int | str, examples: int, *values: float) -> Score:
    return Score(group, examples, dict(zip(("accuracy", "majority", "precision", "recall", "f1"), values, strict=True)))


def test_scores_of_a_worked_example() -> None:
    predicted = np.array([1, 1, 0, 0, 1, 0], bool)
    actual = np.array([1, 0, 0, 1, 1, 0], bool)
    group = np.array([3, 3, 3, 3, 5, 5])
    by_group = {score.group: score for score in binary_scores(predicted, actual, group)}
    assert list(by_group) == [3, 5, "all"]
    assert by_group[3] == binary(3, 4, 0.5, 0.5, 0.5, 0.5, 0.5)
    assert by_group[5] == binary(5, 2, 1.0, 0.5, 1.0, 1.0, 1.0)
    assert by_group["all"].accuracy == pytest.approx(4 / 6)
    assert by_group["all"].precision == pytest.approx(2 / 3)


def test_scores_are_those_of_scikit_learn() -> None:
    draws = np.random.default_rng(5)
    predicted, actual = draws.random(300) < 0.3, draws.random(300) < 0.6
    precision, recall, f1, _ = precision_recall_fscore_support(actual, predicted, average="binary")
    metrics = binary_scores(predicted, actual, np.zeros(300, int))[-1].metrics
    assert [metrics[name] for name in ("precision", "recall", "f1")] == pytest.approx([precision, recall, f1])
    assert metrics["accuracy"] == pytest.approx(accuracy_score(actual, predicted))


def test_where_nothing_is_positive_precision_and_recall_are_zero() -> None:
    nothing = np.zeros(3, bool)
    assert binary_scores(nothing, nothing, np.zeros(3, int))[-1] == binary("all", 3, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert binary_scores(nothing, ~nothing, np.zeros(3, int))[-1] == binary("all", 3, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_no_example_gives_one_score_without_metrics() -> None:
    for score in binary_scores(np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, int)):
        assert score == Score("all", 0, {})
        assert score.accuracy is None


def test_scores_of_several_classes_by_group_and_for_all() -> None:
    predicted, actual, group = np.array([2, 0, 1, 1]), np.array([2, 0, 0, 1]), np.array([7, 7, 7, 3])
    first, second, overall = class_scores(predicted, actual, group)
    assert (first.group, first.examples, first.accuracy, first.majority) == (3, 1, 1.0, 1.0)
    assert (second.group, second.examples, second.accuracy, second.majority) == (7, 3, 2 / 3, 2 / 3)
    assert (overall.group, overall.examples, overall.accuracy, overall.majority) == ("all", 4, 0.75, 0.5)
    assert overall.f1 is None
    (nothing,) = class_scores(*[np.empty(0, np.int64)] * 3)
    assert nothing.examples == 0
    assert nothing.accuracy is None
