"""Scores of several networks as tables in Markdown or LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

from treemem.errors import RecipeError
from treemem.metrics.score import Monitor, PublishedFigure, Score

ACCURACY = Monitor("accuracy")
MAJORITY = "majority class"
OVERALL_METRICS = (
    "accuracy", "precision", "recall", "f1", "macro f1", "balanced accuracy", "auc", "average precision",
)  # fmt: skip
_OF_NUMBERS = ("rmse", "mae", "r2")
"""Metrics over all examples that are not in percent."""
TableFormat = Literal["markdown", "latex"]
SEEDS = "seeds (n)"
INTERVAL = "95 % interval (Student's t over seeds)"
"""Heads of columns."""


def accuracy_table(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    monitor: Monitor = ACCURACY,
    group_name: Callable[[int], str] = str,
    format: TableFormat = "markdown",
) -> str:
    """Return a table of a metric, with a row for each network and a column for each group.

    A column has the number of seeds. If a row is a mean over several, the last column has the confidence interval of
    its last score. The first row is the majority class, the last one the number of examples. Networks that were scored
    on other examples follow, with such rows of their own.

    Args:
        scores: network to its scores by group; the last score is for all examples.
        published: published figures, shown in the last column.
        group: name of the groups.
        split: split of the published figures.
        monitor: the metric, and how it is shown.
        group_name: name of a group, such as :meth:`treemem.task.Task.group_name`; one with an empty name has no column.
        format: ``"markdown"`` or ``"latex"``.
    """
    metric = monitor.metric
    figures = {figure.network: figure for figure in published if (figure.split, figure.metric) == (split, metric)}
    columns = [column for column in _columns(scores) if isinstance(column, str) or group_name(column)]

    has_intervals = any(interval_text(rows[-1], monitor) for rows in scores.values())

    def line(
        name: str, known: Mapping[int | str, Score], cell: Callable[[Score], str], last: Score | None
    ) -> list[str]:
        runs = "" if last is None or last.runs is None else str(last.runs)
        interval = [] if not has_intervals else [interval_text(last, monitor) if last is not None else ""]
        return [name, runs, *(cell(known[group]) if group in known else "" for group in columns), *interval]

    names = [f"{group} {group_name(name)}" if isinstance(name, int) else name for name in columns]
    rows = [["network", SEEDS, *names, *([f"{names[-1]}: {INTERVAL}"] if has_intervals else [])]]
    for alike in scored_alike(scores) or [{}]:
        if any(score.majority is not None for score in _columns(alike).values()):
            rows.append(line(MAJORITY, _columns(alike), lambda score: monitor.shown(score.majority), None))
        for network, network_scores in alike.items():
            by_group = {score.group: score for score in network_scores}
            rows.append(line(network, by_group, partial(mean_text, monitor=monitor), network_scores[-1]))
        rows.append(line("examples", _columns(alike), lambda score: str(score.examples), None))
    if figures:
        rows[0].append("published, all")
        for row in rows[1:]:
            row.append(monitor.shown(figures[row[0]].value, figures[row[0]].deviation) if row[0] in figures else "")
    return formatted_table(rows, format)


def _is_first(metric: str, score: Score) -> bool:
    """Return whether a metric is the one that a score has a deviation of."""
    return [*score.metrics][:1] == [metric]


def mean_text(score: Score, monitor: Monitor = ACCURACY) -> str:
    """Return a metric, and its standard deviation over seeds if there is one."""
    deviation = score.deviation if _is_first(monitor.metric, score) else None
    return monitor.shown(score.metrics.get(monitor.metric), deviation)


def interval_text(score: Score, monitor: Monitor = ACCURACY) -> str:
    """Return the confidence interval of a metric over seeds; empty for one seed, and for a metric without deviation."""
    interval = score.interval if _is_first(monitor.metric, score) else None
    return "" if interval is None else " to ".join(map(monitor.shown, interval))


def scored_alike(scores: Mapping[str, Sequence[Score]]) -> list[dict[str, Sequence[Score]]]:
    """Return the networks in parts that were scored on the same examples, as far as counts and majorities tell."""
    parts: list[dict[str, Sequence[Score]]] = []
    for network, rows in scores.items():
        part = next((part for part in parts if _fit_together(rows, _columns(part))), None)
        if part is None:
            parts.append(part := {})
        part[network] = rows
    return parts


def _fit_together(rows: Sequence[Score], others: Mapping[int | str, Score]) -> bool:
    def examples(score: Score) -> tuple[int, str]:
        return score.examples, percent_of(score.majority)

    return all(examples(score) == examples(others.get(score.group, score)) for score in rows)


def overall_table(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    split: str = "test",
    format: TableFormat = "markdown",
) -> str:
    """Return a table of the metrics over all examples: accuracy, precision, recall, F1 and their like in percent.

    Those of a regression are in the units of the target; R² is 1 for a perfect one. A metric that no network has is
    left out.

    Args:
        scores: network to its scores by group; the last score is for all examples.
        published: published figures, shown in parentheses.
        split: split of the published figures.
        format: ``"markdown"`` or ``"latex"``.
    """
    figures = {(figure.network, figure.metric): figure for figure in published if figure.split == split}
    overall = [rows[-1].metrics for rows in scores.values()]
    of_targets = dict.fromkeys(name for of_network in overall for name in of_network if name.startswith("rmse "))
    names = (*OVERALL_METRICS, *_OF_NUMBERS, *of_targets)
    metrics = [name for name in names if any(of_network.get(name) is not None for of_network in overall)]
    rows = [["network", SEEDS, *metrics]]
    for network, (*_, score) in scores.items():
        cells = ["" if score.runs is None else str(score.runs)]
        for metric in metrics:
            figure = figures.get((network, metric))
            value = score.metrics.get(metric)
            cell = percent_of(value, score.deviation if metric == "accuracy" else None)
            if metric not in OVERALL_METRICS:
                cell = "" if value is None else f"{value:.4g}"
            cells.append(cell if figure is None else f"{cell} ({percent_of(figure.value, figure.deviation)})")
        rows.append([network, *cells])
    return formatted_table(rows, format)


def _columns(scores: Mapping[str, Sequence[Score]]) -> dict[int | str, Score]:
    """Return a score of each group, in the order of the groups, "all" last."""
    by_group = {score.group: score for rows in scores.values() for score in rows}
    return {name: by_group[name] for name in sorted(by_group, key=lambda name: (isinstance(name, str), name))}


def percent_of(value: float | None, deviation: float | None = None) -> str:
    """Return a fraction and its deviation in percent, an empty text for None."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def formatted_table(rows: Sequence[Sequence[str]], format: TableFormat) -> str:
    """Return rows of cells as a table. The first row is the head.

    Raises:
        RecipeError: ``format`` is unknown.
    """
    if format not in get_args(TableFormat):
        raise RecipeError(f"a table has the format {' or '.join(get_args(TableFormat))}, not {format!r}")
    return markdown_table(rows) if format == "markdown" else latex_table(rows)


def titled(title: str, table: str, format: TableFormat) -> str:
    """Return a table below its title, which is a comment in LaTeX."""
    return f"{title}\n\n{table}" if format == "markdown" else f"% {title}\n{table}"


_IN_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "[": "{[}", "*": "{*}", "±": r"$\pm$", "\n": " ",
}  # fmt: skip
"""What stands for a character; ``[`` and ``*`` would belong to the end of the line before."""
_NEGATIVE = re.compile(r"(?<![\w.)-])-(?=\d)")


def latex_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as a ``tabular`` with the rules of the package ``booktabs``. The first row is the head.

    Special characters are escaped, and a negative number gets a minus sign.

    Example:
        >>> print(latex_table([["network", "all, %"], ["Tree-LSTM", "91.20 ± 0.31"]]))
        \\begin{tabular}{lr}
        \\toprule
        network & all, \\% \\\\
        \\midrule
        Tree-LSTM & 91.20 $\\pm$ 0.31 \\\\
        \\bottomrule
        \\end{tabular}
    """
    head, *body = (" & ".join(map(_latex, row)) + r" \\" for row in rows)
    columns = "l" + "r" * (len(rows[0]) - 1)
    begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end])


def _latex(cell: str) -> str:
    """Return the text of a cell for LaTeX."""
    pieces = _NEGATIVE.split(cell)
    return "$-$".join("".join(_IN_LATEX.get(character, character) for character in piece) for piece in pieces)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as an aligned Markdown table. The first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
