"""Pieces of results pages: what records of runs say, in cells and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treemem.errors import RecipeError
from treemem.explore import markdown_table, percent_of
from treemem.metrics.score import PublishedFigure, Score
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, compare, mean_scores, recorded_scores, right_answers
from treemem.runs.state import defaults_of
from treemem.task import Task

RUN_FIELDS = ("row", "network", "training", "data", "weights", "parameters", "seconds", "scores")
"""What pages of results read out of the record of a run."""

Records = list[dict[str, Any]]
"""Of runs, as :func:`treemem.runs.run_study` gives them."""


def training_seed(record: Mapping[str, Any]) -> int:
    """The seed of a run that a study trained."""
    return int(record["training"]["seed"])


def comparisons(
    by_row: Mapping[str, Records], base: str, part: str, seed_of: Callable[[Mapping[str, Any]], int] = training_seed
) -> str:
    """Every row against ``base``, example by example, over the seeds that both have.

    Args:
        by_row: the records of each row.
        base: the row to compare with.
        part: the answers of which split, file or rank.
        seed_of: the seed of a record.

    Returns:
        A Markdown table; empty where there is nothing to compare.
    """
    head = ["network", "difference, points", "95 % interval", "right alone", "wrong alone", "McNemar's p by seed"]
    rows: list[list[str]] = []
    theirs = {seed_of(run): right_answers(run, part) for run in by_row.get(base, [])}
    for name, runs in by_row.items():
        own = {seed_of(run): right_answers(run, part) for run in runs}
        seeds = sorted(own.keys() & theirs.keys())
        if name == base or not seeds:
            continue
        found = compare(np.stack([own[seed] for seed in seeds]), np.stack([theirs[seed] for seed in seeds]))
        low, high = (100 * bound for bound in found.interval)
        p_values = ", ".join(f"{value:.2g}" for value in found.p_values)
        difference, interval = f"{100 * found.difference:+.2f}", f"{low:+.2f} to {high:+.2f}"
        rows.append([name, difference, interval, str(found.only_first), str(found.only_second), p_values])
    return markdown_table([head, *rows]) if rows else ""


def grouped(records: Records, by: str = "row") -> dict[str, Records]:
    """The records of each row, or of each value of another field, in the order of the first of each."""
    found: dict[str, Records] = {}
    for record in records:
        found.setdefault(record[by], []).append(record)
    return found


def scores_on(record: Mapping[str, Any], part: str) -> list[Score]:
    """The scores of a run on a split or file, by group and last for all.

    Raises:
        RecipeError: it was not scored on this part.
    """
    if part not in record["scores"]:
        name = record.get("run", record["row"])
        raise RecipeError(f"the record of {name!r} has no scores on {part!r}; remove it and run it again")
    return recorded_scores(record, part)


def overall(record: Mapping[str, Any], part: str) -> Score:
    """The score of a run on a whole split or file.

    Raises:
        RecipeError: it was not scored on this part.
    """
    return scores_on(record, part)[-1]


def examples_by_group(records: Records, part: str) -> dict[int | str, int]:
    """How many examples the runs were scored on, by group and last for all.

    Raises:
        RecipeError: there are no records, one was not scored on this part, or they are of other data.
    """
    found: dict[int | str, int] = {}
    for record in records:
        own = {score.group: score.examples for score in scores_on(record, part)}
        if record["data"]["hash"] != records[0]["data"]["hash"] or own != (found or own):
            first, name = (run.get("run", run["row"]) for run in (records[0], record))
            raise RecipeError(
                f"the runs {first!r} and {name!r} are of other data, and one table cannot say of which; keep the "
                "records of one of them"
            )
        found = own
    if not found:
        raise RecipeError("there are no records to tell the data from")
    return found


def greatest_group(examples: Mapping[int | str, int]) -> int:
    """The greatest of the groups that are numbers, of those of :func:`examples_by_group`."""
    return max(group for group in examples if isinstance(group, int))


def common_training(records: Records) -> dict[str, Any]:
    """The training options that all runs have, which differ in their seed alone.

    Raises:
        RecipeError: there are no records, or runs with other options; what a record lacks was at its default.
    """
    if not records:
        raise RecipeError("there are no records to tell the training from")
    options = [{**defaults_of(TrainingOptions), **record["training"], "seed": None} for record in records]
    _check_alike(records, options)
    return options[0]


def rows_of_networks(records: Records, task: type[Task]) -> dict[str, Records]:
    """The records of each row, which is of one network: its runs have the same options of network and task.

    Raises:
        RecipeError: a row has runs with others; what a record lacks was at its default.
    """
    by_row = grouped(records)
    for runs in by_row.values():
        _check_alike(runs, [_network_options(run, task) for run in runs])
    return by_row


def _network_options(record: Mapping[str, Any], task: type[Task]) -> dict[str, Any]:
    network = NetworkConfig(**record["network"])
    of_task = {**defaults_of(task), **(record.get("task") or {})}
    return {
        "network": network.network,
        **defaults_of(network.constructor()),
        **network.options,
        **{f"task_options.{name}": value for name, value in of_task.items()},
    }


def _check_alike(records: Records, options: Sequence[Mapping[str, Any]]) -> None:
    """Make sure that all runs have the options of the first one.

    Raises:
        RecipeError: one has others.
    """
    first, *others = options
    for record, own in zip(records[1:], others, strict=True):
        changed = [name for name in {**first, **own} if first.get(name) != own.get(name)]
        if changed:
            name, of_first = (run.get("run", run["row"]) for run in (record, records[0]))
            raise RecipeError(
                f"the run {name!r} was trained with other {' and '.join(changed)} than {of_first!r}, and one table "
                "cannot say with which; keep the records of one of them"
            )


def mean_over_seeds(runs: Records, part: str) -> list[Score]:
    """Mean and deviation over runs that differ in their seeds, by group and last overall.

    Raises:
        RecipeError: one of them was not scored on this part.
    """
    return mean_scores([scores_on(run, part) for run in runs])


def metric_cells(runs: Records, part: str, metrics: Sequence[str]) -> list[str]:
    """Mean ± deviation of each metric on a whole split or file; empty where it was not scored."""
    if any(part not in run["scores"] for run in runs):
        return [""] * len(metrics)
    found = [overall(run, part) for run in runs]
    return [percent([float(getattr(each, metric)) for each in found]) for metric in metrics]


def percent(values: Sequence[float]) -> str:
    """Mean ± deviation of fractions, in percent."""
    return percent_of(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def as_published(figure: PublishedFigure) -> str:
    """A figure in percent with the digits that it was published with; a deviation has one after the point at least."""
    spread = "" if figure.deviation is None else f" ± {_shortest_percent(figure.deviation, 1)}"
    return f"{_shortest_percent(figure.value, 0)}{spread}"


def _shortest_percent(fraction: float, least: int) -> str:
    """A fraction in percent, of its decimals those that are not noughts at the end, or the ``least`` first ones."""
    whole, _, decimals = f"{100 * fraction:.6f}".partition(".")
    decimals = decimals.rstrip("0").ljust(least, "0")
    return f"{whole}.{decimals}" if decimals else whole


def cost(records: Records) -> str:
    """How many runs, and how long they took."""
    seconds = sum(record["seconds"] for record in records)
    seeds = sorted({training_seed(record) for record in records})
    hours = f"{seconds / 3600:.1f} hours of training by the clock, all runs added up"
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"{len(records)} run{'s' * (len(records) > 1)} of the {named}, {hours}"
