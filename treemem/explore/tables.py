"""Scores of several networks as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from treemem.metrics.score import Monitor, PublishedFigure, Score

ACCURACY = Monitor("accuracy")
MAJORITY = "majority class"
OVERALL_METRICS = (
    "accuracy", "precision", "recall", "f1", "macro f1", "balanced accuracy", "auc", "average precision",
)  # fmt: skip


def accuracy_table(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    monitor: Monitor = ACCURACY,
    group_name: Callable[[int], str] = str,
) -> str:
    """Return a Markdown table of a metric, with a row for each network and a column for each group.

    The first row is the majority class, the last one the number of examples. Networks that were scored on other
    examples follow, with such rows of their own.

    Args:
        scores: network to its scores by group; the last score is for all examples.
        published: published figures, shown in the last column.
        group: name of the groups.
        split: split of the published figures.
        monitor: the metric, and how it is shown.
        group_name: name of a group, such as :meth:`treemem.task.Task.group_name`; one with an empty name has no column.
    """
    metric = monitor.metric
    figures = {figure.network: figure for figure in published if (figure.split, figure.metric) == (split, metric)}
    columns = [column for column in _columns(scores) if isinstance(column, str) or group_name(column)]

    def line(name: str, known: Mapping[int | str, Score], cell: Callable[[Score], str]) -> list[str]:
        return [name, *(cell(known[group]) if group in known else "" for group in columns)]

    rows = [["network", *(f"{group} {group_name(name)}" if isinstance(name, int) else name for name in columns)]]
    for alike in scored_alike(scores) or [{}]:
        if any(score.majority is not None for score in _columns(alike).values()):
            rows.append(line(MAJORITY, _columns(alike), lambda score: monitor.shown(score.majority)))
        for network, network_scores in alike.items():
            by_group = {score.group: score for score in network_scores}
            rows.append(
                line(network, by_group, lambda score: monitor.shown(score.metrics.get(metric), score.deviation))
            )
        rows.append(line("examples", _columns(alike), lambda score: str(score.examples)))
    if figures:
        rows[0].append("published, all")
        for row in rows[1:]:
            row.append(monitor.shown(figures[row[0]].value, figures[row[0]].deviation) if row[0] in figures else "")
    return markdown_table(rows)


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
    scores: Mapping[str, Sequence[Score]], published: Iterable[PublishedFigure] = (), *, split: str = "test"
) -> str:
    """Return a Markdown table of accuracy, precision, recall, F1 and their like over all examples, in percent.

    A metric that no network has is left out.

    Args:
        scores: network to its scores by group; the last score is for all examples.
        published: published figures, shown in parentheses.
        split: split of the published figures.
    """
    figures = {(figure.network, figure.metric): figure for figure in published if figure.split == split}
    overall = [rows[-1].metrics for rows in scores.values()]
    metrics = [name for name in OVERALL_METRICS if any(of_network.get(name) is not None for of_network in overall)]
    rows = [["network", *metrics]]
    for network, (*_, score) in scores.items():
        cells = []
        for metric in metrics:
            figure = figures.get((network, metric))
            cell = percent_of(score.metrics.get(metric), score.deviation if metric == "accuracy" else None)
            cells.append(cell if figure is None else f"{cell} ({percent_of(figure.value, figure.deviation)})")
        rows.append([network, *cells])
    return markdown_table(rows)


def _columns(scores: Mapping[str, Sequence[Score]]) -> dict[int | str, Score]:
    """Return a score of each group, in the order of the groups, "all" last."""
    by_group = {score.group: score for rows in scores.values() for score in rows}
    return {name: by_group[name] for name in sorted(by_group, key=lambda name: (isinstance(name, str), name))}


def percent_of(value: float | None, deviation: float | None = None) -> str:
    """Return a fraction and its deviation in percent, an empty text for None."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


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
