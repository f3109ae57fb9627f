from __future__ import annotations

import math

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.metrics.accuracy import binary_scores, class_scores
from treemem.metrics.score import Score, row_group, row_score, score_row


def test_scores_of_a_worked_example() -> None:
    predicted = np.array([1, 1, 0, 0, 1, 0], bool)
    actual = np.array([1, 0, 0, 1, 1, 0], bool)
    group = np.array([3, 3, 3, 3, 5, 5])
    by_group = {score.group: score for score in binary_scores(predicted, actual, group)}
    assert list(by_group) == [3, 5, "all"]
    assert by_group[3] == Score(3, 4, 0.5, 0.5, 0.5, 0.5, 0.5)
    assert by_group[5] == Score(5, 2, 1.0, 0.5, 1.0, 1.0, 1.0)
    assert by_group["all"].accuracy == pytest.approx(4 / 6)
    assert by_group["all"].precision == pytest.approx(2 / 3)


def test_where_nothing_is_positive_precision_and_recall_are_zero() -> None:
    nothing = np.zeros(3, bool)
    assert binary_scores(nothing, nothing, np.zeros(3, int))[-1] == Score("all", 3, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert binary_scores(nothing, ~nothing, np.zeros(3, int))[-1] == Score("all", 3, 0.0, 1.0, 0.0, 0.0, 0.0)


def test_no_example_gives_one_score_without_an_accuracy() -> None:
    (score,) = binary_scores(np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, int))
    assert (score.group, score.examples) == ("all", 0)
    assert math.isnan(score.accuracy)


def test_a_row_gives_its_score_back_and_one_of_another_form_is_refused() -> None:
    for score in (Score(8, 10, 0.5, 0.6), Score("all", 10, 0.5, 0.6, 0.1, 0.2, 0.3, deviation=0.4)):
        assert row_score(score_row("Tree-LSTM", score, "depth"), "depth") == score
    with pytest.raises(RecipeError, match=r"needs the fields network, length, examples, .*; no 'length'"):
        row_score(score_row("Tree-LSTM", Score(8, 10, 0.5, 0.6), "depth"), "length")


def test_a_row_names_the_group_as_the_task_does() -> None:
    row = score_row("Tree-LSTM", Score(8, 10, 0.5, 0.6), "depth")
    assert row["network"] == "Tree-LSTM"
    assert (row["depth"], row["examples"], row["accuracy"], row["majority"]) == (8, 10, 0.5, 0.6)


@pytest.mark.parametrize("group", ["depth", "set of expressions", "group"])
def test_what_the_groups_are_called_is_told_by_a_row(group: str) -> None:
    row = score_row("Tree-LSTM", Score(8, 10, 0.5, 0.6), group)
    assert row_group(row) == group
    del row[group]
    with pytest.raises(RecipeError, match="has a field for its group; there are only network, examples, accuracy, maj"):
        row_group(row)


def test_scores_of_several_classes_by_group_and_for_all() -> None:
    predicted, actual, group = np.array([2, 0, 1, 1]), np.array([2, 0, 0, 1]), np.array([7, 7, 7, 3])
    first, second, overall = class_scores(predicted, actual, group)
    assert (first.group, first.examples, first.accuracy, first.majority) == (3, 1, 1.0, 1.0)
    assert (second.group, second.examples, second.accuracy, second.majority) == (7, 3, 2 / 3, 2 / 3)
    assert (overall.group, overall.examples, overall.accuracy, overall.majority) == ("all", 4, 0.75, 0.5)
    assert overall.f1 is None
    (nothing,) = class_scores(*[np.empty(0, np.int64)] * 3)
    assert nothing.examples == 0
    assert np.isnan(nothing.accuracy)
