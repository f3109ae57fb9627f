from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.metrics.score import (
    Monitor,
    Score,
    column_scores,
    interval_half_width,
    mean_scores,
    row_group,
    row_score,
    score_columns,
    score_row,
    scores_by_group,
)

RESULTS = sorted((Path(__file__).parents[2] / "docs" / "results").rglob("*.jsonl"))


def test_a_metric_is_an_attribute_and_one_that_is_not_there_is_none() -> None:
    score = Score(8, 10, {"perplexity": 3.5, "accuracy": None})
    assert (score.perplexity, score.accuracy, score.f1) == (3.5, None, None)
    with pytest.raises(AttributeError):
        score._repr_html_  # noqa: B018
    assert Score(**dataclasses.asdict(score)) == score


def test_the_mean_of_scores_of_a_worked_example() -> None:
    runs = [
        [Score("all", 4, {"accuracy": 0.5, "precision": 0.2, "f1": None})],
        [Score("all", 4, {"accuracy": 0.7, "precision": 0.4, "f1": None})],
    ]
    (mean,) = mean_scores(runs)
    assert mean.accuracy == pytest.approx(0.6)
    assert mean.deviation == pytest.approx(0.02**0.5)
    assert (mean.precision, mean.f1) == (pytest.approx(0.3), None)
    assert mean.runs == 2
    assert mean_scores(runs[:1])[0].deviation is None
    assert mean_scores(runs[:1])[0].runs == 1
    (other,) = mean_scores([[Score("all", 4, {"bleu": value, "accuracy": 0.5})] for value in (0.1, 0.2, 0.4)])
    assert other.deviation == pytest.approx(np.std([0.1, 0.2, 0.4], ddof=1)), "of the first metric"
    with pytest.raises(RecipeError, match="different groups"):
        mean_scores([[Score(1, 1, {})], [Score(2, 1, {})]])


def test_scores_by_group_are_in_order_and_the_last_is_of_all() -> None:
    value = np.array([1.0, 2.0, 4.0])
    found = scores_by_group(np.array([9, 2, 9]), lambda chosen: {"mean": float(value[chosen].mean())})
    assert found == [Score(2, 1, {"mean": 2.0}), Score(9, 2, {"mean": 2.5}), Score("all", 3, {"mean": 7 / 3})]


@pytest.mark.parametrize(("mode", "better"), [("max", 0.6), ("min", 0.4)])
def test_a_monitor_compares_in_its_direction(mode: str, better: float) -> None:
    monitor = Monitor("metric", mode)  # type: ignore[arg-type]  # one of its modes
    assert monitor.is_better(0.5, None)
    assert monitor.is_better(better, 0.5)
    assert not monitor.is_better(1 - better, 0.5)
    assert not monitor.is_better(0.5, 0.5)
    assert not monitor.is_better(math.nan, 0.5)
    assert monitor._replace(ties="last").is_better(0.5, 0.5)
    assert monitor.is_better(0.5, 0.5, 0.1, 0.2)
    assert not monitor.is_better(0.5, 0.5, 0.2, 0.1)
    assert not monitor.is_better(1 - better, 0.5, 0.1, 0.2)
    assert not monitor._replace(ties="first").is_better(0.5, 0.5, 0.1, 0.2)


def test_a_monitor_shows_a_fraction_in_percent_and_another_number_as_it_is() -> None:
    assert Monitor("accuracy").shown(0.5, 0.01) == "50.00 ± 1.00"
    assert Monitor("perplexity", "min", percent=False).shown(3.456) == "3.46"
    assert Monitor("accuracy").shown(None) == ""


@pytest.mark.parametrize("group", ["depth", "set of expressions", "group"])
def test_a_row_gives_its_score_and_group_back(group: str) -> None:
    for score in (
        Score(8, 10, {"accuracy": 0.5, "majority": 0.6}),
        Score("all", 10, {"perplexity": 3.5, "accuracy": None}, 0.4),
    ):
        row = score_row("Tree-LSTM", score, group)
        assert row["network"] == "Tree-LSTM"
        assert row_group(row) == group
        assert row_score(row, group) == score
        assert row_score(json.loads(json.dumps(row)), group) == score


def test_a_row_of_another_form_is_refused() -> None:
    row = score_row("Tree-LSTM", Score(8, 10, {"accuracy": 0.5}), "depth")
    with pytest.raises(RecipeError, match="needs the field 'length'; this one has network, depth, examples, accuracy"):
        row_score(row, "length")
    del row["depth"]
    with pytest.raises(RecipeError, match="has the fields network, GROUP, examples; this one has network, examples"):
        row_group(row)


@pytest.mark.parametrize("group", ["depth", "operations", "set of expressions", "group"])
def test_columns_give_their_scores_back_whatever_the_task_calls_its_groups(group: str) -> None:
    scores = [Score(8, 10, {"accuracy": 0.5, "f1": 0.3}), Score("all", 11, {"accuracy": 0.6, "f1": None})]
    columns = score_columns(scores, group)
    assert columns == {group: [8, "all"], "examples": [10, 11], "accuracy": [0.5, 0.6], "f1": [0.3, None]}
    assert column_scores(json.loads(json.dumps(columns))) == scores


def test_columns_keep_ten_significant_digits() -> None:
    columns = score_columns([Score(8, 3, {"accuracy": 2 / 3, "perplexity": 12345.678})], "depth")
    assert columns == {"depth": [8], "examples": [3], "accuracy": [0.6666666667], "perplexity": [12345.678]}


def test_every_committed_score_is_written_again_as_it_was() -> None:
    records = [json.loads(line) for path in RESULTS for line in path.read_text(encoding="utf-8").splitlines()]
    of_runs = [record["scores"] for record in records if "right" in record and "constant" not in record]
    columns = [each for scores in of_runs for each in scores.values()]
    assert len(columns) > 1000
    for each in columns:
        assert score_columns(column_scores(each), next(iter(each))) == each


def test_the_confidence_interval_of_a_mean_is_that_of_students_t() -> None:
    from scipy import stats

    values = [0.5, 0.7, 0.72]
    (mean,) = mean_scores([[Score("all", 4, {"accuracy": value})] for value in values])
    expected = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert mean.interval == pytest.approx(expected)
    assert interval_half_width(1.0, 2) == pytest.approx(12.7062 / 2**0.5, rel=1e-5)


def test_one_run_and_a_record_without_a_number_of_runs_have_no_interval() -> None:
    assert Score("all", 4, {"accuracy": 0.5}).interval is None
    row = score_row("A", Score("all", 4, {"accuracy": 0.5}, 0.1, 3), "depth")
    assert row_score(row, "depth").interval is not None
    del row["runs"]
    assert row_score(row, "depth").runs is None
    assert row_score(row, "depth").interval is None
