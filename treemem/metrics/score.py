"""Scores of groups of examples, and published figures to compare with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, near_names


class Monitor(NamedTuple):
    """The metric that chooses the best checkpoint.

    Attributes:
        metric: its name in :attr:`Score.metrics`.
        mode: whether a larger or a smaller value is better.
        percent: whether it is a fraction, which tables and plots show in percent.
        ties: which of equally good epochs is the best: the one with the lowest validation ``"loss"`` (the first one if
            validation reports no loss), the ``"first"`` or the ``"last"`` one.
    """

    metric: str
    mode: Literal["max", "min"] = "max"
    percent: bool = True
    ties: Literal["loss", "first", "last"] = "loss"

    def shown(self, value: float | None, deviation: float | None = None) -> str:
        """Return a value, and its deviation if there is one, as a table shows it."""
        if value is None:
            return ""
        factor = 100 if self.percent else 1
        return f"{factor * value:.2f}" + ("" if deviation is None else f" ± {factor * deviation:.2f}")

    def is_better(
        self, value: float, best: float | None, loss: float | None = None, best_loss: float | None = None
    ) -> bool:
        """Return whether ``value`` beats the best value so far; any value beats None and NaN, and NaN no number.

        Args:
            value, best: of this evaluation and of the best one before it.
            loss, best_loss: their validation losses, if they are known, for :attr:`ties`.
        """
        if best is None or math.isnan(best):
            return True
        if value == best:
            is_lower = loss is not None and best_loss is not None and loss < best_loss
            return self.ties == "last" or (self.ties == "loss" and is_lower)
        return value > best if self.mode == "max" else value < best


LOSS = Monitor("loss", "min", percent=False)
"""The validation loss as the monitor."""

_MINIMISED = ("loss", "perplexity", "rmse", "mae")


def monitor_of(metric: str, known: Iterable[str]) -> Monitor:
    """Return the monitor of a metric that validation reports.

    Args:
        metric: its name.
        known: the names of the metrics that validation reports.

    Raises:
        RecipeError: ``metric`` is not among them.
    """
    names = [name for name in known if name != "majority"]
    if metric not in names:
        raise RecipeError(
            f"validation reports no {metric!r}{near_names(metric, names)}; training.monitor may be {', '.join(names)}"
        )
    is_minimised = metric.split()[0] in _MINIMISED
    return Monitor(metric, "min" if is_minimised else "max", percent=not is_minimised and metric != "r2")


_MAY_BE_ABSENT = ("accuracy", "precision", "recall", "f1", "majority")
"""Metrics that are None where a task does not have them."""


@dataclass(frozen=True)
class Score:
    """The metrics of one group of examples.

    A metric is also an attribute: ``score.accuracy`` is ``score.metrics["accuracy"]``, and None if there is no such
    metric.

    Attributes:
        group: what these examples have in common (a depth, a length), or ``"all"``.
        examples: how many there are.
        metrics: values by name, the main one first. Accuracies are fractions, not percent.
        deviation: standard deviation of the first metric over several runs, if this is their mean.
        runs: the number of runs that this is the mean of; None if it is not recorded.
    """

    group: int | str
    examples: int
    metrics: Mapping[str, float | None]
    deviation: float | None = None
    runs: int | None = 1

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean of the first metric over runs; None for one run."""
        if self.deviation is None or self.runs is None or self.runs < 2:
            return None
        mean = next(iter(self.metrics.values())) or 0.0
        half = interval_half_width(self.deviation, self.runs)
        return mean - half, mean + half

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "metrics":
            raise AttributeError(name)
        if name not in self.metrics and name not in _MAY_BE_ABSENT:
            raise AttributeError(f"no metric {name!r}{near_names(name, self.metrics)}; there are {list(self.metrics)}")
        return self.metrics.get(name)


@dataclass(frozen=True)
class PublishedFigure:
    """One number of a published table.

    Attributes:
        network, split, metric: what was measured.
        value: a fraction, not percent.
        deviation: over the runs of the table, if it gives one.
        source: the publication.
    """

    network: str
    split: str
    metric: str
    value: float
    deviation: float | None
    source: str

    @classmethod
    def of_percent(
        cls, network: str, split: str, metric: str, value: float, deviation: float | None, source: str
    ) -> PublishedFigure:
        """Return a figure whose value and deviation are published in percent."""
        spread = None if deviation is None else round(deviation / 100, 6)
        return cls(network, split, metric, round(value / 100, 6), spread, source)


def scores_by_group(
    group: NDArray[np.int64], metrics_of: Callable[[NDArray[np.bool_]], Mapping[str, float | None]]
) -> list[Score]:
    """Return one score for each group in ascending order, and last one for all examples.

    Args:
        group: int64 ``[examples]``.
        metrics_of: the metrics of a mask of examples, ``[examples]``. Not called for an empty mask.
    """

    def score(name: int | str, chosen: NDArray[np.bool_]) -> Score:
        return Score(name, int(chosen.sum()), metrics_of(chosen) if chosen.any() else {})

    return [*(score(int(value), group == value) for value in np.unique(group)), score("all", np.ones(len(group), bool))]


def with_overall(scores: Sequence[Score], metrics: Mapping[str, float | None]) -> list[Score]:
    """Return scores whose last one, for all examples, has further metrics; those of groups are None."""
    *groups, overall = scores
    absent = dict.fromkeys(metrics)
    return [
        *(replace(score, metrics={**score.metrics, **absent}) for score in groups),
        replace(overall, metrics={**overall.metrics, **metrics}),
    ]


def interval_half_width(deviation: float, runs: int, confidence: float = 0.95) -> float:
    """Return half the width of the confidence interval of a mean, by Student's t-distribution (Student 1908).

    It takes the runs for independent draws from a normal distribution.

    Args:
        deviation: sample standard deviation over the runs.
        runs: how many, at least 2.
        confidence: the probability that such an interval holds the mean.
    """
    from scipy.special import stdtrit

    return float(stdtrit(runs - 1, (1 + confidence) / 2)) * deviation / math.sqrt(runs)


def mean_scores(runs: Sequence[Sequence[Score]]) -> list[Score]:
    """Return the mean of several runs' scores on the same examples, with the sample deviation of the first metric.

    Raises:
        RecipeError: the runs were scored on different groups.
    """
    if any([score.group for score in run] != [score.group for score in runs[0]] for run in runs):
        raise RecipeError("the runs were scored on different groups, so they have no mean")
    means = []
    for scores in zip(*runs, strict=True):
        metrics = {name: _mean([score.metrics.get(name) for score in scores]) for name in scores[0].metrics}
        main = [value for score in scores for value in list(score.metrics.values())[:1] if value is not None]
        deviation = statistics.stdev(main) if len(main) > 1 else None
        means.append(Score(scores[0].group, scores[0].examples, metrics, deviation, max(1, len(main))))
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def score_row(network: str, score: Score, group: str) -> dict[str, int | float | str | None]:
    """Return a score as a record of a results file; ``group`` is what the task groups by, such as ``"depth"``."""
    return {
        "network": network,
        group: score.group,
        "examples": score.examples,
        **score.metrics,
        "deviation": score.deviation,
        "runs": score.runs,
    }


def row_score(row: Mapping[str, Any], group: str) -> Score:
    """Return the score that :func:`score_row` made a record of.

    Raises:
        RecipeError: a field is missing.
    """
    absent = [name for name in ("network", group, "examples", "deviation") if name not in row]
    if absent:
        raise RecipeError(f"a record of scores needs the field {absent[0]!r}; this one has {', '.join(row)}")
    fixed = {"network", group, "examples", "deviation", "runs"}
    metrics = {name: value for name, value in row.items() if name not in fixed}
    return Score(row[group], row["examples"], metrics, row["deviation"], row.get("runs"))


def row_group(row: Mapping[str, Any]) -> str:
    """Return what the record of :func:`score_row` calls its groups: its second field.

    Raises:
        RecipeError: a record of another form.
    """
    names = [name for name in row if name != "network"]
    if "network" not in row or len(names) < 2 or names[0] == "examples":
        raise RecipeError(f"a record of scores has the fields network, GROUP, examples; this one has {', '.join(row)}")
    return names[0]


def score_columns(scores: Sequence[Score], group: str) -> dict[str, list[Any]]:
    """Return the scores of a run by field: a list of all groups, of all numbers of examples, and of each metric.

    ``group`` is what the task groups by. Metrics keep ten significant digits; a run has no deviations to keep.
    """
    names = dict.fromkeys(name for score in scores for name in score.metrics)
    return {
        group: [score.group for score in scores],
        "examples": [score.examples for score in scores],
        **{name: [_ten_digits(score.metrics.get(name)) for score in scores] for name in names},
    }


def _ten_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.10g}")


def column_scores(columns: Mapping[str, Sequence[Any]]) -> list[Score]:
    """Return the scores that :func:`score_columns` made columns of."""
    groups, examples, *metrics = columns.values()
    rows = zip(groups, examples, *metrics, strict=True)
    return [Score(group, count, dict(zip([*columns][2:], values, strict=True))) for group, count, *values in rows]
