"""What the page shows of table 2 with each network's own learning rate: the chosen rates, and the claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treemem.explore.tables import markdown_table
from treemem.metrics.paired import Comparison
from treemem.runs.page_tables import (
    Records,
    grouped,
    metric,
    paired,
    points,
    scores,
    seed_of_record,
)
from treemem.runs.study_file import Study

PLAIN, STACKED = "Tree-LSTM", "Tree-LSTM+stack"
NORMALIZED, BEST = "Tree-LSTM+stack+normalize", "Tree-LSTM+stack+normalize+no-op"
_TEN = 0.1


def by_rate(study: Study, records: Records) -> dict[str, dict[str, Records]]:
    """Return the records of each network by rate, of the seeds that are recorded with all rates.

    Networks without such a seed are left out.
    """
    rows = grouped(records)
    by_network = {}
    for network in dict.fromkeys(row.rpartition(", ")[0] for row in rows):
        runs_of_rate = {rate: rows.get(f"{network}, {rate}", []) for rate in study.variants}
        seeds = set.intersection(*({seed_of_record(run) for run in runs} for runs in runs_of_rate.values()))
        if seeds:
            by_network[network] = {
                rate: [run for run in runs if seed_of_record(run) in seeds] for rate, runs in runs_of_rate.items()
            }
    return by_network


def own_rates(study: Study, records: Records) -> dict[str, str]:
    """Return the rate of each network with the best mean validation accuracy, the lowest of equals."""
    return {
        network: max(rates, key=lambda rate: scores({"": rates[rate]}, "validation")[""][-1].accuracy)
        for network, rates in by_rate(study, records).items()
    }


def rows_with_own_rates(study: Study, records: Records) -> dict[str, Records]:
    """Return the runs of each network with its own rate."""
    known, chosen = by_rate(study, records), own_rates(study, records)
    return {network: known[network][rate] for network, rate in chosen.items()}


def rate_table(study: Study, records: Records) -> str:
    """Return a Markdown table of the validation accuracy with each rate; that of the network's own rate is bold."""
    chosen = own_rates(study, records)
    lines = [["network", "seeds", *study.variants]]
    for network, rates in by_rate(study, records).items():
        cells = {rate: metric(runs, "validation") for rate, runs in rates.items()}
        cells[chosen[network]] = f"**{cells[chosen[network]]}**"
        lines.append([network, str(len(rates[chosen[network]])), *cells.values()])
    return markdown_table(lines)


def end_rates(study: Study, records: Records) -> str:
    """Return a sentence about the networks whose own rate is the lowest or the highest tried; "" if there are none."""
    rates = list(study.variants)
    at_end = {name: rate for name, rate in own_rates(study, records).items() if rate in (rates[0], rates[-1])}
    if not at_end:
        return ""
    named = ", ".join(f"{name} ({rate.removeprefix('rate ')})" for name, rate in at_end.items())
    return f"At the end of the rates that were tried, so another rate may be better: {named}."


def claim_table(rows: Mapping[str, Records], page: Any) -> str:
    """Return a Markdown table of the claims of the paper: the published figures, ours, and what ours say.

    A difference counts if its 95 % interval does not hold 0. Claims about rows that are not recorded are left out.

    Args:
        rows: of :func:`rows_with_own_rates`.
        page: has the published figures.
    """
    lines = [["claim", "published", "ours", "95 % interval", "do ours show it?"]]

    def published(first: str, second: str) -> str:
        figures = [page.figure(name, "test") for name in (first, second)]
        return f"{100 * (figures[0].value - figures[1].value):+.2f}"

    for claim, first, second in (
        ("The stack helps Tree-LSTM", STACKED, PLAIN),
        ("The stack with normalised actions and no-op helps Tree-LSTM", BEST, PLAIN),
        ("The stack lowers Tree-RNN", "Tree-RNN", "Tree-RNN+stack"),
        ("It is better not to normalise the actions", STACKED, NORMALIZED),
        ("The no-op helps", BEST, NORMALIZED),
    ):
        comparison = paired(rows.get(first, []), rows.get(second, []), "test")
        if comparison is not None:
            lines.append([claim, published(first, second), *points(comparison), _answer(comparison)])
    by_depth = gaps_by_depth(rows)
    if by_depth:
        shown = ", ".join(f"{100 * gap:+.1f}" for gap in by_depth.values())
        depths = f"{min(by_depth)} to {max(by_depth)}"
        widens = np.polyfit(list(by_depth), list(by_depth.values()), 1)[0] > 0 if len(by_depth) > 1 else False
        grows = widens and by_depth[max(by_depth)] == max(by_depth.values())
        answer = "yes" if grows else "in part: it rises, but not to the end" if widens else "no"
        lines.append([f"Its lead widens with depth ({depths})", "a plot", shown, "", answer])
        most = max(by_depth, key=by_depth.__getitem__)
        reached = "yes" if by_depth[most] >= _TEN else "no"
        lines.append(["Its lead is up to 10 %", "a plot", f"{100 * by_depth[most]:+.1f} at depth {most}", "", reached])
    return markdown_table(lines)


def _answer(comparison: Comparison) -> str:
    low, high = comparison.interval
    return "yes" if low > 0 else "no, the opposite" if high < 0 else "no difference"


def gaps_by_depth(rows: Mapping[str, Records]) -> dict[int, float]:
    """Return the lead in accuracy of the best stack of the table over Tree-LSTM, by depth of the test equations."""
    if not rows.get(BEST) or not rows.get(PLAIN):
        return {}
    first, second = (scores({"": rows[name]}, "test")[""] for name in (BEST, PLAIN))
    return {
        ours.group: ours.accuracy - theirs.accuracy
        for ours, theirs in zip(first, second, strict=True)
        if isinstance(ours.group, int)
    }
