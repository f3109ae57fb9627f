"""What the page of the comparison shows of its study ``learned``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from treemem.explore.tables import MAJORITY, markdown_table
from treemem.networks import NetworkConfig
from treemem.runs.page_tables import Records, metric, percent, percent_of, scores_on, seed_of_record
from treemem.tasks.comparison.comparison import BEYOND
from treemem.tasks.comparison.learned import LearnedPart, best_trial, learned_parts
from treemem.tasks.comparison.report import reads

SHARES = {"a tenth": 0.1, "a third": 1 / 3, "the whole": 1.0}
"""Of the budget, at which the page shows what a network has learned."""


def finished_parts(page: Any) -> dict[str, tuple[LearnedPart, dict[str, Records]]]:
    """Return the parts with rows whose runs are all recorded, and the records of these rows."""
    found = {}
    for name, part in learned_parts().items():
        rows = {row: page.records(f"{part.title}/{part.stem_of(row)}") for row in part.order}
        whole = {row: runs for row, runs in rows.items() if len(runs) == len(part.seeds)}
        if whole:
            found[name] = part, {row: whole[row] for row in part.recipe.networks if row in whole}
    return found


def is_complete(page: Any) -> bool:
    """Return whether all rows of all parts are recorded; of rows that cannot be trained, the trials."""
    for part in learned_parts().values():
        trials = page.records(f"{part.title}/trials")
        for row in part.order:
            tried = part.trials_of(trials, row)
            cannot = bool(tried) and best_trial(tried) is None
            if not cannot and len(page.records(f"{part.title}/{part.stem_of(row)}")) < len(part.seeds):
                return False
    return True


def learned_summary(parts: Mapping[str, tuple[LearnedPart, Mapping[str, Records]]], titles: Mapping[str, str]) -> str:
    """Return a Markdown table of the accuracy beyond training: a row for each network, a column for each part."""
    shares = [scores_on(next(iter(rows.values()))[0], BEYOND)[-1].majority for _, rows in parts.values()]
    lines = [["network", "reads", *(titles[name] for name in parts)], [MAJORITY, "", *map(percent_of, shares)]]
    cells: dict[str, dict[str, str]] = {}
    read: dict[str, str] = {}
    for name, (part, rows) in parts.items():
        for row, runs in rows.items():
            plain = next((row.removesuffix(f", {form}") for form in part.forms if row.endswith(f", {form}")), row)
            if not part.forms or row == plain or row.endswith(part.forms[0]):
                cells.setdefault(plain, {})[name] = metric(runs, BEYOND)
                read[plain] = reads(NetworkConfig(**runs[0]["network"]))
    return markdown_table(
        [*lines, *([row, read[row], *(known.get(name, "") for name in parts)] for row, known in cells.items())]
    )


def part_table(part: LearnedPart, rows: Mapping[str, Records]) -> str:
    """Return a Markdown table of a part: sizes, what the trials chose, accuracies, and training examples a second."""
    head = [
        "network",
        "hidden size",
        "weights",
        "chosen",
        "validation",
        "test",
        BEYOND,
        *part.files,
        "examples seen",
        "a second",
    ]
    lines = [head]
    for row, runs in rows.items():
        first = runs[0]
        chosen = f"{first['training']['optimizer']}, {first['training']['learning_rate']:g}"
        about = [str(first["network"]["options"]["hidden_size"]), f"{first['parameters']:,}", chosen]
        accuracies = [metric(runs, name) for name in ("validation", "test", BEYOND, *part.files)]
        seen, seconds = (statistics.fmean(run[name] for run in runs) for name in ("examples", "compute_seconds"))
        lines.append([row, *about, *accuracies, f"{seen:,.0f}", f"{seen / seconds:,.0f}"])
    return markdown_table(lines)


def best_by(curve: Sequence[Sequence[float]], seconds: float) -> float:
    """Return the best value of a curve of ``(seconds, value)`` up to some seconds, or else its first value."""
    return max([value for spent, value in curve if spent <= 1.02 * seconds] or [curve[0][1]])


def budget_table(part: LearnedPart, rows: Mapping[str, Records]) -> str:
    """Return a Markdown table of the best validation accuracy at parts of the budget."""
    budget = part.recipe.training.budget
    assert budget is not None
    lines = [["network", *(f"{name} ({share * budget:.0f} s)" for name, share in SHARES.items())]]
    for row, runs in rows.items():
        at = [percent([best_by(run["curve"], share * budget) for run in runs]) for share in SHARES.values()]
        lines.append([row, *at])
    return markdown_table(lines)


def curve_panels(part: LearnedPart, rows: Mapping[str, Records]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the mean of the best validation accuracy, in percent, by seconds, for what networks read and each row."""
    budget = part.recipe.training.budget
    assert budget is not None
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row, runs in rows.items():
        moments = [budget * step / part.recipe.training.epochs for step in range(1, part.recipe.training.epochs + 1)]
        points = [(each, 100 * statistics.fmean(best_by(run["curve"], each) for run in runs)) for each in moments]
        panels.setdefault(reads(NetworkConfig(**runs[0]["network"])), {})[row] = points
    return panels


def trial_rows(page: Any, part: LearnedPart) -> str:
    """Return a Markdown table of the validation accuracy of all trials; the chosen one is bold."""
    recorded = page.records(f"{part.title}/trials")
    known = {(each["row"], each["optimizer"], each["learning_rate"]): each["accuracy"] for each in recorded}
    columns = sorted({(optimizer, rate) for _, optimizer, rate in known})
    lines = [["network", *(f"{optimizer}, {rate:g}" for optimizer, rate in columns)]]
    for row in part.order:
        best = best_trial(part.trials_of(recorded, row))
        if best is None:
            continue
        cells = []
        for optimizer, rate in columns:
            tried = (row, optimizer, rate)
            shown = "" if tried not in known else percent_of(known[tried]) or "diverged"
            cells.append(f"**{shown}**" if tried[1:] == (best.optimizer, best.rate) else shown)
        lines.append([row, *cells])
    return markdown_table(lines)


def trees_of(page: Any, part: LearnedPart, rows: Mapping[str, Records]) -> Records:
    """Return the records of induced trees that belong to the weights of the rows' runs."""
    found = []
    for row, runs in rows.items():
        weights = {f"seed {seed_of_record(run)}": run["weights"] for run in runs}
        recorded = page.records(f"{part.title}/{part.stem_of(row)}-trees")
        found += [each for each in recorded if each["weights"] == weights]
    return found
