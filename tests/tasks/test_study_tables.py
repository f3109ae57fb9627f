from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.metrics.score import PublishedFigure, Score
from treemem.runs import packed_answers, score_row
from treemem.tasks.study_tables import (
    as_published,
    comparisons,
    cost,
    grouped,
    mean_over_seeds,
    metric_cells,
    overall,
    percent,
    training_seed,
)


def record(row: str, seed: int, accuracy: float = 0.5, right: str = "1111", seconds: float = 900.0) -> dict[str, Any]:
    scores = [Score(8, 3, accuracy - 0.1, 0.5, 0.6, 0.7, 0.8), Score("all", 4, accuracy, 0.5, 0.2, accuracy / 2, 0.4)]
    answers = np.array([answer == "1" for answer in right])
    return {
        "row": row,
        "training": {"seed": seed},
        "seconds": seconds,
        "scores": {"test": [score_row(row, score, "depth") for score in scores]},
        "right": {"test": packed_answers(answers), "other": packed_answers(~answers)},
    }


def cells(table: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [line for number, line in enumerate(lines) if number != 1]


def test_every_row_but_the_base_is_compared_with_it_over_the_seeds_that_both_have() -> None:
    by_row = {
        "better": [record("better", 1, right="1110"), record("better", 2, right="1111")],
        "base": [record("base", 2, right="1000"), record("base", 3, right="0000")],
        "worse": [record("worse", 2, right="0000"), record("worse", 3, right="0001")],
        "of other seeds": [record("of other seeds", 4)],
    }
    head, *rows = cells(comparisons(by_row, "base", "test"))
    assert head[:2] == ["network", "difference, points"]
    assert [[row[0], row[1], *row[3:]] for row in rows] == [
        ["better", "+75.00", "3", "0", "0.25"],
        ["worse", "+0.00", "1", "1", "1, 1"],
    ]
    low, high = (float(bound) for bound in rows[0][2].split(" to "))
    assert 0 <= low <= 75 <= high <= 100
    _, better, _ = cells(comparisons(by_row, "base", "other"))
    assert better[1] == "-75.00", "of the part asked for"


def test_where_nothing_can_be_compared_there_is_no_table() -> None:
    assert comparisons({"base": [record("base", 1)]}, "base", "test") == ""
    assert comparisons({"other": [record("other", 1)]}, "base", "test") == ""
    assert comparisons({"base": [record("base", 1)], "other": [record("other", 2)]}, "base", "test") == ""


def test_the_seed_of_a_record_may_stand_elsewhere() -> None:
    by_row = {name: [{**record(name, 1), "own": number}] for number, name in enumerate(("base", "other"))}
    assert comparisons(by_row, "base", "test", lambda run: run["own"]) == ""
    assert "| other" in comparisons(by_row, "base", "test")
    assert training_seed(by_row["base"][0]) == 1


def test_records_are_grouped_in_the_order_of_the_first_of_each() -> None:
    records = [record("b", 1), record("a", 1), record("b", 2)]
    assert {name: [training_seed(run) for run in runs] for name, runs in grouped(records).items()} == {
        "b": [1, 2],
        "a": [1],
    }
    assert list(grouped(records)) == ["b", "a"]
    assert list(grouped([{**run, "rank": number} for number, run in enumerate(records)], by="rank")) == [0, 1, 2]


def test_scores_are_those_of_the_whole_part_and_their_mean_over_seeds_by_group() -> None:
    runs = [record("a", 1, 0.5), record("a", 2, 0.7)]
    assert overall(runs[1], "test") == Score("all", 4, 0.7, 0.5, 0.2, 0.35, 0.4)
    of_group, of_all = mean_over_seeds(runs, "test")
    assert (of_group.group, of_all.group) == (8, "all")
    assert (of_group.accuracy, of_all.accuracy) == (pytest.approx(0.5), pytest.approx(0.6))
    assert of_all.deviation == pytest.approx(0.02**0.5)
    assert mean_over_seeds(runs[:1], "test")[-1].deviation is None
    for of_part in (overall, lambda run, part: mean_over_seeds([run], part)):
        with pytest.raises(RecipeError, match="the record of 'a' has no scores on 'validation'; remove it and run it"):
            of_part(runs[0], "validation")


def test_metrics_fill_a_cell_each_or_none_where_a_run_was_not_scored() -> None:
    runs = [record("a", 1, 0.5), record("a", 2, 0.7)]
    assert metric_cells(runs, "test", ["accuracy", "recall"]) == ["60.00 ± 14.14", "30.00 ± 7.07"]
    unscored = {**record("a", 3), "scores": {}}
    assert metric_cells([*runs, unscored], "test", ["accuracy", "recall"]) == ["", ""]


@pytest.mark.parametrize(
    ("value", "deviation", "shown"),
    [(0.9997, 0.00014, "99.97 ± 0.014"), (0.715, 0.015, "71.5 ± 1.5"), (0.98, 0.0, "98 ± 0.0"), (1.0, None, "100")],
)
def test_a_published_figure_has_the_digits_of_its_source(value: float, deviation: float | None, shown: str) -> None:
    assert as_published(PublishedFigure("LSTM", "test", "accuracy", value, deviation, "a table")) == shown


def test_one_value_has_no_deviation() -> None:
    assert percent([0.12345]) == "12.35"
    assert percent([0.1, 0.3]) == "20.00 ± 14.14"


def test_the_cost_counts_runs_seeds_and_hours() -> None:
    records = [record("a", 12, seconds=5400.0), record("a", 9, seconds=1800.0), record("b", 9, seconds=900.0)]
    assert cost(records) == "3 runs of the seeds 9, 12, 2.2 hours of training by the clock, all runs added up"
    assert cost(records[:1]).startswith("1 run of the seed ")
