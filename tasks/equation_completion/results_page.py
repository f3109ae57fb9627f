"""The page of results of equation completion, made from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treemem.explore import markdown_table, plot_accuracy
from treemem.records import replacing
from treemem.task import Score
from treemem.tasks.equation_completion.ranks import TOP
from treemem.training import compare, right_answers

Records = list[dict[str, Any]]
_SHOWN = (1, 3, 5, 10)
_BASE = "Tree-LSTM"
_CONSTANT = "commonest values first"
_COMMAND = "python -m treemem.tasks.equation_completion.reproduce"
_TITLES = {
    "generated": "Generated test equations",
    "published_sample": "A sample of the published test equations",
}
_NOTES = {
    "generated": "The blank of each is drawn evenly from its nodes, but for the root, that are candidates.",
    "published_sample": "Their blanks are the published ones. A quarter of these equations do not hold everywhere.",
}
_MEANINGS = {
    "class": "The best candidate that has the original's value, among all candidates",
    "collapsed": "The original's value among the values, each by its best candidate",
    "random_collapse": "The original's value among the values, each by one random candidate (mean of the draws)",
    "raw": "The original itself among all candidates",
}


def write_page(records: Mapping[str, Records], page: Path) -> None:
    """Write the page, and its plots beside it, from the records of each set of equations."""
    parts = ["# Equation completion", _INTRODUCTION]
    parts += [_section(name, of_set, page) for name, of_set in records.items()]
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


_INTRODUCTION = f"""One node of a true equation is blank. A network that was trained to verify equations of depth 1-7
scores the equation with each of 1,470 candidates in the blank: 21 leaves, a trigonometric function of one, and the sum,
product or power of two. Nothing is trained for this. Candidates of equal value are one class, of which there are 601.
Candidates are sorted by score; of equal scores, which candidates that a network reads alike always have, the one that
is earlier in the list comes first. There are no published figures to stand beside these.

Every number here comes from the records in `docs/results/equation_completion/*.jsonl`;
`{_COMMAND}` writes this page from them. Accuracies are percent, mean
± deviation over seeds; without a deviation, of one seed. MRR is the mean of 1 / rank, times 100. *{_CONSTANT}* is a
list that does not look at the equation: the values in the order in which they are blank most often in these very
equations, the best that such a list can do."""


def _section(name: str, records: Records, page: Path) -> str:
    by_network = _by_network(records)
    plot = page.with_name(f"{page.stem}_{name}.svg")
    plot_accuracy(
        {network: _by_top(runs) for network, runs in by_network.items()},
        plot,
        group="rank",
        title=f"{_TITLES[name]}: a candidate of the right value within the first ranks",
        baseline=_CONSTANT,
    )
    tables = [f"### {meaning} (`{rank}`)\n\n{_overall(by_network, rank)}" for rank, meaning in _MEANINGS.items()]
    parts = [
        f"## {_TITLES[name]}\n\n{_NOTES[name]} {_origin(records)}",
        *tables,
        f"![Accuracy by rank]({plot.name})",
        f"### By depth (`class`)\n\nWithin the first rank:\n\n{_by_depth(by_network, 1)}\n\n"
        f"Within the first ten:\n\n{_by_depth(by_network, 10)}",
    ]
    compared = _comparisons(by_network)
    if compared:
        parts.append(
            f"### Against {_BASE}, equation by equation\n\nThe difference of accuracies of the first rank (`class`) "
            f"and its 95 % interval by bootstrap over the equations, the seeds taken together.\n\n{compared}"
        )
    return "\n\n".join(parts)


def _origin(records: Records) -> str:
    data = {(record["data"]["hash"], record["data"]["equations"]) for record in records}
    sets = ", ".join(
        f"{count:,} equations, SHA-256 of them and their blanks `{digest}`" for digest, count in sorted(data)
    )
    commands = ", ".join(f"`{command}`" for command in sorted({record["command"] for record in records}))
    seconds = sum(record["seconds"] for record in records)
    rate = sum(record["data"]["equations"] for record in records) / seconds
    seeds = ", ".join(map(str, sorted({record["seed"] for record in records})))
    return (
        f"{sets}. Command: {commands}; {len(records)} runs of the seeds {seeds}, {seconds / 60:.0f} minutes on one "
        f"thread, {rate:.0f} equations a second."
    )


def _overall(by_network: Mapping[str, Records], rank: str) -> str:
    rows = [["network", *(f"top {most}" for most in _SHOWN), "MRR"]]
    if rank in ("class", "collapsed"):
        constant = next(iter(by_network.values()))[0]["constant"][-1]
        rows.append([_CONSTANT, *(_percent([value]) for value in _shown(constant))])
    for network, runs in by_network.items():
        values = zip(*(_shown(run["scores"][rank][-1]) for run in runs), strict=True)
        rows.append([network, *map(_percent, values)])
    return markdown_table(rows)


def _shown(score: Mapping[str, Any]) -> list[float]:
    return [*(score["top"][most - 1] for most in _SHOWN), score["mrr"]]


def _by_depth(by_network: Mapping[str, Records], most: int) -> str:
    first = next(iter(by_network.values()))[0]
    columns = [score["group"] for score in first["constant"]]
    rows = [["network", *(str(column) if column == "all" else f"depth {column}" for column in columns)]]
    rows.append([_CONSTANT, *(_percent([score["top"][most - 1]]) for score in first["constant"])])
    for network, runs in by_network.items():
        by_column = zip(*([score["top"][most - 1] for score in run["scores"]["class"]] for run in runs), strict=True)
        rows.append([network, *map(_percent, by_column)])
    rows.append(["equations", *(str(score["equations"]) for score in first["constant"])])
    return markdown_table(rows)


def _by_top(runs: Records) -> list[Score]:
    """Accuracy by rank, as scores whose group is the rank."""
    constant = runs[0]["constant"][-1]
    scores = []
    for most in TOP:
        values = [run["scores"]["class"][-1]["top"][most - 1] for run in runs]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        scores.append(
            Score(most, constant["equations"], statistics.fmean(values), constant["top"][most - 1], deviation=deviation)
        )
    return scores


def _comparisons(by_network: Mapping[str, Records]) -> str:
    rows = [["network", "difference, points", "95 % interval"]]
    theirs = {run["seed"]: right_answers(run, "class") for run in by_network.get(_BASE, [])}
    for network, runs in by_network.items():
        own = {run["seed"]: right_answers(run, "class") for run in runs}
        seeds = sorted(own.keys() & theirs.keys())
        if network == _BASE or not seeds:
            continue
        found = compare(np.stack([own[seed] for seed in seeds]), np.stack([theirs[seed] for seed in seeds]))
        low, high = (100 * bound for bound in found.interval)
        rows.append([network, f"{100 * found.difference:+.2f}", f"{low:+.2f} to {high:+.2f}"])
    return markdown_table(rows) if len(rows) > 1 else ""


def _by_network(records: Records) -> dict[str, Records]:
    found: dict[str, Records] = {}
    for record in records:
        found.setdefault(record["network"], []).append(record)
    return found


def _percent(values: Sequence[float]) -> str:
    mean = f"{100 * statistics.fmean(values):.2f}"
    return mean if len(values) < 2 else f"{mean} ± {100 * statistics.stdev(values):.2f}"
