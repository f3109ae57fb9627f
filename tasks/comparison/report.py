"""What the page of the comparison shows, from the records of its parts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from treemem.explore.tables import MAJORITY, markdown_table
from treemem.metrics.score import Score
from treemem.networks import NetworkConfig, every_network
from treemem.runs.page_tables import Records, by_seed, metric, percent_of, scores, scores_on
from treemem.runs.study import network_options
from treemem.task import TASKS
from treemem.tasks.comparison.comparison import BEYOND, Part
from treemem.tasks.induced_trees import BASELINES

_UNLIKE = 10
"""Difference between seeds, in points, that the page names."""


def task_of(part: Part) -> Any:
    """Return the task of a part."""
    return TASKS.find(part.task)(**part.task_options)


def scores_by_group(rows: Mapping[str, Records]) -> dict[str, list[Score]]:
    """Return the mean scores of each row by group, up to the groups of training and beyond them."""
    within, beyond = scores(rows, "test"), scores(rows, BEYOND)
    return {row: [*within[row][:-1], *beyond[row][:-1]] for row in rows}


def summary_table(parts: Mapping[str, tuple[Part, Mapping[str, Records]]]) -> str:
    """Return a Markdown table of the accuracy beyond training, with a row for each network and a column for each part.

    Of the forms in which a sequence network reads trees, the part's last one counts.

    Args:
        parts: name of the column to a part and its finished rows, at least one.
    """
    lines = [["network", "reads", *parts]]
    shares = [scores_on(next(iter(rows.values()))[0], BEYOND)[-1].majority for _, rows in parts.values()]
    lines.append([MAJORITY, "", *map(percent_of, shares)])
    library = every_network(4)
    recorded = {
        _without_form(row, part): NetworkConfig(**runs[0]["network"])
        for part, rows in parts.values()
        for row, runs in rows.items()
    }
    for name, network in {**library, **recorded}.items():
        cells = [metric(_runs_of(name, part, rows), BEYOND) for part, rows in parts.values()]
        if any(cells):
            lines.append([name, reads(network), *cells])
    return markdown_table(lines)


def _runs_of(name: str, part: Part, rows: Mapping[str, Records]) -> Records:
    in_last_form = f"{name}, {part.forms[-1]}" if part.forms else name
    return rows.get(name) or rows.get(in_last_form) or []


def _without_form(row: str, part: Part) -> str:
    return next((row.removesuffix(f", {form}") for form in part.forms if row.endswith(f", {form}")), row)


def _reads_tokens(network: NetworkConfig) -> bool:
    return getattr(network.constructor(), "sort_key", "length") == "length"


def reads(network: NetworkConfig) -> str:
    """Return what a network reads, as tables say it."""
    if not _reads_tokens(network):
        return "gold trees"
    transitions = network_options(asdict(network)).get("transitions", "none")
    return {"gold": "tokens and gold trees", "predicted": "tokens; trees in training"}.get(transitions, "tokens")


def best_row(rows: Mapping[str, Records]) -> str:
    """Return the row with the best mean accuracy beyond training."""
    return max(rows, key=lambda row: scores({row: rows[row]}, BEYOND)[row][-1].accuracy)


def majority_of(rows: Mapping[str, Records]) -> float:
    """Return the share of the majority class beyond training, in percent."""
    return 100 * (scores_on(next(iter(rows.values()))[0], BEYOND)[-1].majority or 0.0)


def at_majority(rows: Mapping[str, Records]) -> list[str]:
    """Return the rows with a mean accuracy beyond training below the majority class or less than a point above it."""
    most = majority_of(rows) + 1
    return [row for row, (*_, score) in scores(rows, BEYOND).items() if 100 * score.accuracy < most]


def of_unlike_seeds(rows: Mapping[str, Records]) -> list[str]:
    """Return the rows whose seeds differ by ten points or more beyond training, each with their accuracies."""
    found = []
    for row, runs in rows.items():
        values = [100 * scores_on(run, BEYOND)[-1].accuracy for run in runs]
        if max(values) - min(values) >= _UNLIKE:
            found.append(f"{row} ({by_seed(runs, BEYOND)})")
    return found


def with_trivial_trees(trees: Records) -> list[str]:
    """Return networks whose trees beyond training are, over the corpus, no better than trees of the length alone."""
    found = []
    for record in trees:
        (group,) = (each for each in record["groups"] if each["group"] == BEYOND)
        f1 = statistics.fmean(group["corpus"]["f1"].values())
        if f1 <= max(group["corpus"][name] for name in BASELINES):
            found.append(record["network"])
    return found


def trial_table(part: Part, records: Records, rows: Sequence[str]) -> str:
    """Return a Markdown table of the validation accuracy of the first seed at each rate."""
    found = {
        (record["row"], record["training"]["learning_rate"]): scores_on(record, "validation")[-1].accuracy
        for record in records
        if record["training"]["seed"] == part.seeds[0]
    }
    head = ["network", *(f"rate {rate:g}" for rate in part.rates)]
    return markdown_table([head, *([row, *(percent_of(found[row, rate]) for rate in part.rates)] for row in rows)])


def cost_panels(
    title: str, part: Part, rows: Mapping[str, Records], speeds: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, tuple[float, list[float]]]]]:
    """Return seconds an epoch and percent beyond training by what a network reads, for ``page.costs``.

    A part whose sequence networks read trees in several forms has a panel for each.
    """
    panels: dict[str, dict[str, dict[str, tuple[float, list[float]]]]] = {}
    for form in part.forms or [""]:
        others = tuple(f", {other}" for other in part.forms if other != form)
        found: dict[str, dict[str, tuple[float, list[float]]]] = {}
        for row, runs in rows.items():
            if row in speeds and not row.endswith(others):
                accuracies = [100 * scores_on(run, BEYOND)[-1].accuracy for run in runs]
                kind = found.setdefault(reads(NetworkConfig(**runs[0]["network"])), {})
                kind[_without_form(row, part)] = speeds[row]["epoch"], accuracies
        if found:
            panels[f"{title}, {form}" if form else title] = found
    return panels
