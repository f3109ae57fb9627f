"""What the page of the comparison shows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from treemem.explore.tables import MAJORITY, markdown_table
from treemem.networks import NetworkConfig
from treemem.runs.page_tables import Records, metric, percent, percent_of, scores, scores_on, seed_of_record
from treemem.runs.run import network_options
from treemem.tasks.comparison.comparison import BEYOND, Part, best_trial, comparison_parts

SHARES = {"a tenth": 0.1, "a third": 1 / 3, "the whole": 1.0}
"""Of the budget, at which the page shows what a network has learned."""


def recorded_parts(page: Any) -> dict[str, tuple[Part, dict[str, Records]]]:
    """Return the parts with recorded runs, and the records of their rows, in the order of the networks."""
    recorded = {}
    for name, part in comparison_parts().items():
        tried = [record["row"] for record in page.records(f"{part.title}/trials")]  # networks of users among them
        order = dict.fromkeys([*part.networks, *part.wide, *tried])
        rows = {row: page.records(f"{part.title}/{part.stem_of(row)}") for row in order}
        if any(rows.values()):
            recorded[name] = part, {row: runs for row, runs in rows.items() if runs}
    return recorded


def compared_rows(part: Part, rows: Mapping[str, Records]) -> dict[str, Records]:
    """Return the rows with all seeds and scores beyond training."""
    return {
        row: runs
        for row, runs in rows.items()
        if len(runs) == len(part.seeds) and all(BEYOND in run["scores"] for run in runs)
    }


def is_incomplete(page: Any) -> bool:
    """Return whether a row lacks runs, other than a row that cannot be trained."""
    for part in comparison_parts().values():
        trials = page.records(f"{part.title}/trials")
        for row in part.order:
            tried = part.trials_of(trials, row)
            cannot = bool(tried) and best_trial(tried) is None
            if not cannot and len(page.records(f"{part.title}/{part.stem_of(row)}")) < len(part.seeds):
                return True
    return False


def reads(network: NetworkConfig) -> str:
    """Return what a network reads, as tables say it."""
    if getattr(network.constructor(), "sort_key", "length") != "length":
        return "gold trees"
    transitions = network_options(asdict(network)).get("transitions", "none")
    return {"gold": "tokens and gold trees", "predicted": "tokens; trees in training"}.get(transitions, "tokens")


def best_row(rows: Mapping[str, Records]) -> str:
    """Return the row with the best mean accuracy beyond training."""
    return max(rows, key=lambda row: scores({row: rows[row]}, BEYOND)[row][-1].accuracy)


def majority_of(rows: Mapping[str, Records]) -> float:
    """Return the share of the majority class beyond training, in percent."""
    return 100 * (scores_on(next(iter(rows.values()))[0], BEYOND)[-1].majority or 0.0)


def summary_table(parts: Mapping[str, tuple[Part, Mapping[str, Records]]], titles: Mapping[str, str]) -> str:
    """Return a Markdown table of the accuracy beyond training: a row for each network, a column for each part.

    A cell of fewer runs than the part has seeds tells how many. Of the forms in which a network reads trees, the part's
    first one counts.
    """
    shares = [scores_on(next(iter(rows.values()))[0], BEYOND)[-1].majority for _, rows in parts.values()]
    lines = [["network", "reads", *(titles[name] for name in parts)], [MAJORITY, "", *map(percent_of, shares)]]
    cells: dict[str, dict[str, str]] = {}
    read: dict[str, str] = {}
    for name, (part, rows) in parts.items():
        for row, runs in rows.items():
            plain = next((row.removesuffix(f", {form}") for form in part.forms if row.endswith(f", {form}")), row)
            shown = metric(runs, BEYOND)
            if shown and (row == plain or row.endswith(part.forms[0])):
                few = "" if len(runs) == len(part.seeds) else f" ({len(runs)} of {len(part.seeds)} seeds)"
                cells.setdefault(plain, {})[name] = shown + few
                read[plain] = reads(NetworkConfig(**runs[0]["network"]))
    return markdown_table(
        [*lines, *([row, read[row], *(known.get(name, "") for name in parts)] for row, known in cells.items())]
    )


def part_table(part: Part, rows: Mapping[str, Records]) -> str:
    """Return a Markdown table of a part: sizes, what the trials chose, accuracies, and training examples a second."""
    scored = ["validation", "test", BEYOND, *part.files]
    lines = [["network", "hidden size", "weights", "chosen", "seeds", *scored, "examples seen", "a second"]]
    for row, runs in rows.items():
        first = runs[0]
        chosen = f"{first['training']['optimizer']}, {first['training']['learning_rate']:g}"
        about = [str(first["network"]["options"]["hidden_size"]), f"{first['parameters']:,}", chosen, str(len(runs))]
        accuracies = [metric(runs, name) for name in scored]
        seen, seconds = (statistics.fmean(run[name] for run in runs) for name in ("examples", "compute_seconds"))
        lines.append([row, *about, *accuracies, f"{seen:,.0f}", f"{seen / seconds:,.0f}"])
    return markdown_table(lines)


def best_by(curve: Sequence[Sequence[float]], seconds: float) -> float:
    """Return the best value of a curve of ``(seconds, value)`` up to some seconds, or else its first value."""
    return max([value for spent, value in curve if spent <= 1.02 * seconds] or [curve[0][1]])


def budget_table(part: Part, rows: Mapping[str, Records]) -> str:
    """Return a Markdown table of the best validation accuracy at parts of the budget."""
    budget = part.recipe.training.budget
    assert budget is not None
    lines = [["network", *(f"{name} ({share * budget:.0f} s)" for name, share in SHARES.items())]]
    for row, runs in rows.items():
        at = [percent([best_by(run["curve"], share * budget) for run in runs]) for share in SHARES.values()]
        lines.append([row, *at])
    return markdown_table(lines)


def curve_panels(part: Part, rows: Mapping[str, Records]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the mean of the best validation accuracy, in percent, by seconds, for what networks read and each row."""
    budget = part.recipe.training.budget
    assert budget is not None
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row, runs in rows.items():
        moments = [budget * step / part.recipe.training.epochs for step in range(1, part.recipe.training.epochs + 1)]
        points = [(moment, 100 * statistics.fmean(best_by(run["curve"], moment) for run in runs)) for moment in moments]
        panels.setdefault(reads(NetworkConfig(**runs[0]["network"])), {})[row] = points
    return panels


def trial_rows(page: Any, part: Part) -> str:
    """Return a Markdown table of the validation accuracy of all trials; the chosen one is bold."""
    recorded = page.records(f"{part.title}/trials")
    known = {(record["row"], record["optimizer"], record["learning_rate"]): record["accuracy"] for record in recorded}
    columns = sorted({(optimizer, rate) for _, optimizer, rate in known})
    lines = [["network", *(f"{optimizer}, {rate:g}" for optimizer, rate in columns)]]
    for row in dict.fromkeys([*part.order, *(record["row"] for record in recorded)]):
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


def trees_of(page: Any, part: Part, rows: Mapping[str, Records]) -> Records:
    """Return the records of induced trees that belong to the weights of the rows' runs, or of some of them."""
    records = []
    for row, runs in rows.items():
        weights = {f"seed {seed_of_record(run)}": run["weights"] for run in runs}
        recorded = page.records(f"{part.title}/{part.stem_of(row)}-trees")
        for record in recorded:
            if record["weights"].items() <= weights.items():
                some = "" if record["weights"] == weights else f" ({len(record['weights'])} of {len(runs)} seeds)"
                records.append({**record, "network": row + some})
    return records
