"""Tables and figures of results pages, made from records of studies. Templates call these functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from treemem.errors import RecipeError
from treemem.explore.tables import (
    INTERVAL,
    SEEDS,
    TableFormat,
    accuracy_table,
    formatted_table,
    interval_text,
    markdown_table,
    mean_text,
)
from treemem.explore.tables import percent_of as percent_of_known
from treemem.metrics.paired import Comparison, compare
from treemem.metrics.score import Monitor, PublishedFigure, Score, mean_scores
from treemem.runs.options import TrainingOptions
from treemem.runs.run import network_options
from treemem.runs.same_run import differences
from treemem.runs.study_records import recorded_scores, right_answers, unpacked_answers

__all__ = ["Score", "accuracy_table", "mean_scores"]  # for templates too

Records = list[dict[str, Any]]
"""Records of runs, as :func:`treemem.runs.run_study` returns them."""


def aligned(text: str) -> str:
    """Return lines with cells between ``|`` as an aligned Markdown table; the first line is the head."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip()]
    return markdown_table([row + [""] * (len(rows[0]) - len(row)) for row in rows])


def seed_of_record(record: Mapping[str, Any]) -> int:
    """Return the seed of a record of a run, or of a measurement of one."""
    return int(record["seed"] if "seed" in record else record["training"]["seed"])


def grouped(records: Records, by: str = "row") -> dict[str, Records]:
    """Return the records of each row (or value of another field), in the order of first appearance."""
    groups: dict[str, Records] = {}
    for record in records:
        groups.setdefault(record[by], []).append(record)
    return groups


def scores_on(record: Mapping[str, Any], part: str) -> list[Score]:
    """Return the scores of a run on a split or file: one for each group, and the last one for all examples.

    Raises:
        RecipeError: the run was not scored on this split or file.
    """
    if part not in record["scores"]:
        raise RecipeError(f"the record of {_name(record)!r} has no scores on {part!r}; remove it and run it again")
    return recorded_scores(record, part)


def scores(rows: Mapping[str, Records], part: str) -> dict[str, list[Score]]:
    """Return the mean scores of each row over its seeds, without rows that were not scored on this part."""
    scored = {name: runs for name, runs in rows.items() if all(part in run["scores"] for run in runs)}
    return {name: mean_scores([scores_on(run, part) for run in runs]) for name, runs in scored.items()}


def study_table(records: Records, monitor: Monitor, format: TableFormat = "markdown") -> str:
    """Return a table with a line for each row of a study: the number of seeds, and a metric on each split and file.

    Each figure is the mean ± standard deviation over the seeds, followed by the confidence interval of the mean.

    Args:
        records: of the runs.
        monitor: the metric.
        format: ``"markdown"`` or ``"latex"``.
    """
    rows = grouped(records)
    parts = [*dict.fromkeys(part for record in records for part in record["scores"])]
    by_part = {part: scores(rows, part) for part in parts}
    unit = ", %" * monitor.percent
    lines = [["row", SEEDS, *(head for part in parts for head in (f"{part} {monitor.metric}{unit}", INTERVAL))]]
    for row, runs in rows.items():
        cells = [row, str(len(runs))]
        for part in parts:
            score = by_part[part][row][-1] if row in by_part[part] else Score("all", 0, {})
            cells += [mean_text(score, monitor), interval_text(score, monitor)]
        lines.append(cells)
    return formatted_table(lines, format)


def metric(runs: Records, part: str, name: str = "accuracy") -> str:
    """Return mean ± standard deviation of a metric on a split or file; empty without runs or scores."""
    if not runs or any(part not in run["scores"] for run in runs):
        return ""
    return percent([scores_on(run, part)[-1].metrics[name] for run in runs])


def by_seed(runs: Records, part: str) -> str:
    """Return the accuracy of each run on a split, file or rank, in percent."""
    return ", ".join(f"{100 * scores_on(run, part)[-1].accuracy:.1f}" for run in runs)


def beyond(runs: Records, part: str, most: int) -> str:
    """Return the accuracy over all groups above ``most``; empty if a run has none."""
    values = []
    for run in runs:
        deep = [score for score in scores_on(run, part) if isinstance(score.group, int) and score.group > most]
        if not deep:
            return ""
        values.append(sum(score.accuracy * score.examples for score in deep) / sum(score.examples for score in deep))
    return percent(values)


def percent(values: Iterable[float | None]) -> str:
    """Return mean ± standard deviation of fractions, in percent."""
    known = [value for value in values if value is not None]
    return (
        percent_of_known(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None) if known else ""
    )


def percent_of(value: float | None, deviation: float | None = None) -> str:
    """Return a fraction in percent; empty for None."""
    return "" if value is None else percent_of_known(value, deviation)


def comparisons(rows: Mapping[str, Records], base: str, part: str) -> str:
    """Return a Markdown table that compares every row with ``base``, example by example, over their common seeds.

    Args:
        rows: the records of each row.
        base: the row to compare with.
        part: the split, file or rank.
    """
    counts = "only this one correct", f"only {base} correct"
    head = ["network", "difference, points", "by seed", "95 % interval", *counts, "McNemar's p by seed"]
    lines: list[list[str]] = []
    for name, runs in rows.items():
        comparison = None if name == base else paired(runs, rows.get(base, []), part)
        if comparison is not None:
            difference, interval = points(comparison)
            of_seeds = ", ".join(f"{100 * value:+.2f}" for value in comparison.differences)
            numbers = str(comparison.only_first), str(comparison.only_second)
            lines.append([name, difference, of_seeds, interval, *numbers, comparison.p_text()])
    return markdown_table([head, *lines]) if lines else ""


def paired(first: Records, second: Records, part: str) -> Comparison | None:
    """Return the comparison of two rows over their common seeds; None without any."""
    ours, theirs = ({seed_of_record(run): right_answers(run, part) for run in runs} for runs in (first, second))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    return compare(np.stack([ours[seed] for seed in seeds]), np.stack([theirs[seed] for seed in seeds]))


def points(comparison: Comparison) -> tuple[str, str]:
    """Return a difference and its interval in percentage points."""
    low, high = (100 * bound for bound in comparison.interval)
    return f"{100 * comparison.difference:+.2f}", f"{low:+.2f} to {high:+.2f}"


def cost(records: Records) -> str:
    """Return the number of runs, their seeds and their training time."""
    hours = sum(record["seconds"] for record in records) / 3600
    seeds = sorted({seed_of_record(record) for record in records})
    named = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return f"{len(records)} run{'s' * (len(records) > 1)} of the {named}, {hours:.1f} hours of training in all"


def hashes(records: Records, file: str | None = None) -> str:
    """Return the start of the hash of the training data, with names if there are several, or of a file.

    Raises:
        RecipeError: two runs have different data with one name.
    """
    if file is not None:
        return ", ".join(f"`{digest[:16]}`" for digest in sorted({run["files"][file] for run in records}))
    by_data: dict[str, str] = {}
    for run in records:
        name, digest = run["data"]["name"], run["data"]["hash"]
        if by_data.setdefault(name, digest) != digest:
            raise RecipeError(f"the run {_name(run)!r} has other data {name!r} than the first run; keep one of the two")
    named = len(by_data) > 1
    return ", ".join(f"{name} " * named + f"`{digest[:16]}`" for name, digest in by_data.items())


def examples_of(records: Records, part: str) -> dict[int | str, int]:
    """Return the number of scored examples by group, last for all.

    Raises:
        RecipeError: the runs have different data.
    """
    counts = [{score.group: score.examples for score in scores_on(record, part)} for record in records]
    hashes = [record["data"]["hash"] for record in records]
    _check_alike(records, [{"data": (digest, of_run)} for digest, of_run in zip(hashes, counts, strict=True)])
    return counts[0]


def largest_group(examples: Mapping[int | str, int]) -> int:
    """Return the largest of the groups that are numbers."""
    return max(group for group in examples if isinstance(group, int))


def training_of(records: Records) -> dict[str, Any]:
    """Return the training options of all runs.

    Raises:
        RecipeError: runs differ in more than the seed.
    """
    options = [{**asdict(TrainingOptions()), **record["training"], "seed": None} for record in records]
    _check_alike(records, options)
    return options[0]


def same_options(records: Records) -> dict[str, Records]:
    """Return the records of each row after checking that its runs have the same options of network and task.

    Raises:
        RecipeError: they differ.
    """
    rows = grouped(records)
    for runs in rows.values():
        _check_alike(runs, [{**network_options(run["network"]), **(run.get("task") or {})} for run in runs])
    return rows


def _check_alike(records: Records, options: Sequence[Mapping[str, Any]]) -> None:
    first = options[0]
    for record, of_record in zip(records, options, strict=True):
        different = differences(first, of_record, free=first.keys() ^ of_record.keys())
        if different:
            raise RecipeError(
                f"the run {_name(record)!r} has other {' and '.join(different)} than {_name(records[0])!r}; one table "
                "cannot hold both, so keep the records of one of them"
            )


def _name(record: Mapping[str, Any]) -> str:
    return str(record.get("run", record.get("row")))


def published_text(figure: PublishedFigure | None) -> str:
    """Return a published figure in percent; a deviation has at least one decimal."""
    if figure is None:
        return ""
    spread = "" if figure.deviation is None else f" ± {_shortest_percent(figure.deviation, 1)}"
    return f"{_shortest_percent(figure.value, 0)}{spread}"


def _shortest_percent(fraction: float, least: int) -> str:
    """Return a fraction in percent without trailing zeros, but with at least ``least`` decimals."""
    whole, _, decimals = f"{100 * fraction:.6f}".partition(".")
    decimals = decimals.rstrip("0").ljust(least, "0")
    return f"{whole}.{decimals}" if decimals else whole


def tree_table(trees: Sequence[Mapping[str, Any]]) -> str:
    """Return the F1 of induced trees and of trivial ones as a Markdown table.

    Args:
        trees: a record for each network: ``network``, its name, and ``groups``, each with ``group``, ``sentences`` and,
            under ``corpus`` and ``sentence``, ``f1`` by run, ``agreement`` and the F1 of each baseline.
    """
    rows = [["trees", "sentences", "number", "average", "F1", "agreement between seeds"]]
    for place, part in enumerate(trees[0]["groups"]):
        about = [part["group"], str(part["sentences"])]
        for average in ("corpus", "sentence"):
            for record in trees:
                scored = record["groups"][place][average]
                cells = [percent(scored["f1"].values()), percent_of(scored["agreement"])]
                rows.append([record["network"], *about, average, *cells])
            baselines = [name for name in part[average] if name not in ("f1", "agreement")]
            rows += [[f"_{name}_", *about, average, percent_of_known(part[average][name]), ""] for name in baselines]
    return markdown_table(rows)


def tree_page_name(task: str, study: str, network: str) -> str:
    """Return the file name of the page with the trees of a network's runs of a study."""
    return f"{task}_{study}_{network.lower().replace(' ', '_')}_trees.html"


def error_table(rows: Mapping[str, Records], kinds: Records, part: str = "test") -> str:
    """Return a Markdown table of error rates in percent: a line for each kind of example, a column for each network.

    Args:
        rows: the records of each row.
        kinds: records of the same data, with ``way``, ``group`` and ``members`` (the packed mask of a kind's examples).
    """
    lines = [["kind", "equations", *rows]]
    for way, groups in grouped(kinds, "way").items():
        lines.append([f"_{way}_", *[""] * (len(rows) + 1)])
        for kind in groups:
            members = unpacked_answers(kind["members"])
            wrong = [[float(1 - right_answers(run, part)[members].mean()) for run in runs] for runs in rows.values()]
            lines.append([kind["group"], str(members.sum()), *map(percent, wrong)])
    return markdown_table(lines)
