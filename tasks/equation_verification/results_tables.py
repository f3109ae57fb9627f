"""Pieces of results pages: what records of runs say, in cells and tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from treemem.explore import accuracy_table, markdown_table, percent_of
from treemem.task import Score
from treemem.tasks.equation_verification.error_analysis import equation_groups, error_rates
from treemem.training import compare, mean_scores, right_answers, row_score
from treemem.trees.forest import Forest

Records = list[dict[str, Any]]
COMMAND = "python -m treemem.tasks.equation_verification.reproduce"
FILES = "--dev published_dev.jsonl --sample published_sample.jsonl"
METRICS = ("accuracy", "precision", "recall")


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


def metric_cells(runs: Records, part: str, metrics: Sequence[str] = METRICS) -> list[str]:
    """Mean ± deviation of each metric on a whole split or file; empty where it was not scored."""
    if any(part not in run["scores"] for run in runs):
        return [""] * len(metrics)
    found = [overall(run, part) for run in runs]
    return [percent([float(getattr(each, metric)) for each in found]) for metric in metrics]


def grouped(records: Records, by: str = "row") -> dict[str, Records]:
    """The records of each row, or of each value of another field, in the order of the first of each."""
    found: dict[str, Records] = {}
    for record in records:
        found.setdefault(record[by], []).append(record)
    return found


def scores_of(record: Mapping[str, Any], part: str) -> list[Score]:
    """The scores of a run on a split or file, by depth and last overall."""
    return [row_score(row, "depth") for row in record["scores"][part]]


def overall(record: Mapping[str, Any], part: str) -> Score:
    """The score of a run on a whole split or file."""
    return scores_of(record, part)[-1]


def mean_over_seeds(runs: Records, part: str) -> list[Score]:
    """Mean and deviation over runs that differ in their seeds, by depth and last overall."""
    return mean_scores([scores_of(run, part) for run in runs])


def percent(values: Sequence[float]) -> str:
    """Mean ± deviation of fractions, in percent."""
    return percent_of(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def cost(records: Records) -> str:
    """How many runs, and how long they took."""
    seconds = sum(record["seconds"] for record in records)
    seeds = sorted({record["training"]["seed"] for record in records})
    hours = f"{seconds / 3600:.1f} hours of training by the clock, all runs added up"
    return f"{len(records)} runs of the seeds {', '.join(map(str, seeds))}, {hours}"


def errors_by_kind(by_row: Mapping[str, Records], test: Forest) -> str:
    """One table: a line for each kind of equation, a column for each network."""
    rows = []
    for way, groups in equation_groups(test).items():
        rates = {
            name: error_rates(groups, [right_answers(run, "test") for run in runs]) for name, runs in by_row.items()
        }
        rows.append([f"_{way}_", *[""] * (len(by_row) + 1)])
        for group, members in groups.items():
            rows.append([group, str(members.sum()), *(percent(rates[name][group]) for name in by_row)])
    return markdown_table([["kind", "equations", *by_row], *rows])


def published_files(by_row: Mapping[str, Records]) -> str:
    """Accuracy on the published files, where they were scored."""
    names = list(dict.fromkeys(name for runs in by_row.values() for run in runs for name in run["scores"]))
    parts = []
    if "published_dev" in names:
        scored = {row: runs for row, runs in by_row.items() if all("published_dev" in run["scores"] for run in runs)}
        rows = [[row, *metric_cells(runs, "published_dev")] for row, runs in scored.items()]
        parts.append(
            "Sound equations of the published set and their one-edit neighbours (`published_dev.jsonl`):\n\n"
            f"{markdown_table([['network', *METRICS], *rows])}"
            "\n\nBy depth:\n\n"
            f"{accuracy_table({row: mean_over_seeds(runs, 'published_dev') for row, runs in scored.items()})}"
        )
    held = [name for name in names if name.startswith("published_sample")]
    if held:
        rows = [
            [row, *(cell for name in held for cell in metric_cells(runs, name, METRICS[:1]))]
            for row, runs in by_row.items()
        ]
        parts.append(
            "Published test equations labelled true (`published_sample.jsonl`) that were called true, by whether they "
            "hold at all real points, some or none:\n\n"
            f"{markdown_table([['network', *(name.split(', ')[1] for name in held)], *rows])}"
        )
    return "\n\n".join(parts) if parts else "They were not there to be scored."
