"""The page of results of equation completion, made from the records alone."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from treemem.explore import markdown_table, plot_accuracy
from treemem.metrics.score import Score
from treemem.records import replacing
from treemem.runs import mean_scores
from treemem.tasks.equation_verification.completion.ranks import SHOWN, TOP
from treemem.tasks.study_tables import Records, comparisons, grouped, percent

_BASE = "Tree-LSTM"
_CONSTANT = "commonest values first"
COMMAND = "python -m treemem.tasks.equation_verification.completion.reproduce"
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
`{COMMAND}` writes this page from them. Accuracies are percent, mean
± deviation over seeds; without a deviation, of one seed. MRR is the mean of 1 / rank, times 100. *{_CONSTANT}* is a
list that does not look at the equation: the values in the order in which they are blank most often in these very
equations, the best that such a list can do."""


def _section(name: str, records: Records, page: Path) -> str:
    by_network = grouped(records, "network")
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
    compared = comparisons(by_network, _BASE, "class", itemgetter("seed"))
    if compared:
        parts.append(
            f"### Against {_BASE}, equation by equation\n\nThe difference of accuracies of the first rank (`class`) "
            "and its 95 % interval by bootstrap over the equations, the seeds taken together; and McNemar's exact test "
            f"for each seed.\n\n{compared}"
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
    rows = [["network", *(f"top {most}" for most in SHOWN), "MRR"]]
    if rank in ("class", "collapsed"):
        constant = next(iter(by_network.values()))[0]["constant"][-1]
        rows.append([_CONSTANT, *(percent([value]) for value in _shown(constant))])
    for network, runs in by_network.items():
        values = zip(*(_shown(run["scores"][rank][-1]) for run in runs), strict=True)
        rows.append([network, *map(percent, values)])
    return markdown_table(rows)


def _shown(score: Mapping[str, Any]) -> list[float]:
    return [*(score["top"][most - 1] for most in SHOWN), score["mrr"]]


def _by_depth(by_network: Mapping[str, Records], most: int) -> str:
    first = next(iter(by_network.values()))[0]
    columns = [score["group"] for score in first["constant"]]
    rows = [["network", *(str(column) if column == "all" else f"depth {column}" for column in columns)]]
    rows.append([_CONSTANT, *(percent([score["top"][most - 1]]) for score in first["constant"])])
    for network, runs in by_network.items():
        by_column = zip(*([score["top"][most - 1] for score in run["scores"]["class"]] for run in runs), strict=True)
        rows.append([network, *map(percent, by_column)])
    rows.append(["equations", *(str(score["equations"]) for score in first["constant"])])
    return markdown_table(rows)


def _by_top(runs: Records) -> list[Score]:
    """Mean accuracy by rank, as scores whose group is the rank."""
    return mean_scores([[_score(run, most) for most in TOP] for run in runs])


def _score(run: Mapping[str, Any], most: int) -> Score:
    found, constant = run["scores"]["class"][-1], run["constant"][-1]
    return Score(most, constant["equations"], found["top"][most - 1], constant["top"][most - 1])
