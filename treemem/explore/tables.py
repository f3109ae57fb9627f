"""Scores of several networks as a table of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from treemem.metrics.score import Monitor, PublishedFigure, Score

ACCURACY = Monitor("accuracy")


def accuracy_table(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    monitor: Monitor = ACCURACY,
) -> str:
    """Return a metric as a Markdown table: a row a network and a column a group.

    The first row is the majority class, if the scores have it; the last one says how many examples each group has.
    Networks that were scored on other examples stand below, between two such rows of their own.

    Args:
        scores: network to its scores by group, the one for all of them last.
        published: figures of others; their accuracy on ``split`` over all groups stands in a last column.
        group: what the groups are.
        split: of the published figures.
        monitor: which metric, and how it is shown.

    Returns:
        The table, without a line end after its last row.
    """
    metric = monitor.metric
    figures = {figure.network: figure for figure in published if (figure.split, figure.metric) == (split, metric)}
    columns = _columns(scores)

    def line(name: str, known: Mapping[int | str, Score], told: Callable[[Score], str]) -> list[str]:
        return [name, *(told(known[group]) if group in known else "" for group in columns)]

    def shown(score: Score) -> str:
        return monitor.shown(score.metrics.get(metric), score.deviation)

    rows = [["network", *(f"{group} {name}" if name != "all" else "all" for name in columns)]]
    for alike in scored_alike(scores) or [{}]:
        if any(score.majority is not None for score in _columns(alike).values()):
            rows.append(line("majority class", _columns(alike), lambda score: monitor.shown(score.majority)))
        for network, own in alike.items():
            by_group = {score.group: score for score in own}
            rows.append(
                line(network, by_group, lambda score: monitor.shown(score.metrics.get(metric), score.deviation))
            )
        rows.append(line("examples", _columns(alike), lambda score: str(score.examples)))
    if figures:
        rows[0].append("published, all")
        for row in rows[1:]:
            figure = figures.get(row[0])
            row.append("" if figure is None else monitor.shown(figure.value, figure.deviation))
    return markdown_table(rows)


def scored_alike(scores: Mapping[str, Sequence[Score]]) -> list[dict[str, Sequence[Score]]]:
    """The networks in parts that were scored on the same examples, as far as scores can tell.

    They tell other examples by another number of them in a group, or another majority.
    """
    parts: list[dict[str, Sequence[Score]]] = []
    for network, own in scores.items():
        part = next((part for part in parts if _fit_together(own, part)), None)
        if part is None:
            parts.append(part := {})
        part[network] = own
    return parts


def _fit_together(own: Sequence[Score], others: Mapping[str, Sequence[Score]]) -> bool:
    def told(score: Score) -> tuple[int, str]:
        return score.examples, ACCURACY.shown(score.majority)

    of_others = _columns(others)
    return all(told(score) == told(of_others.get(score.group, score)) for score in own)


def overall_table(
    scores: Mapping[str, Sequence[Score]], published: Iterable[PublishedFigure] = (), *, split: str = "test"
) -> str:
    """Accuracy, precision, recall and F1 over all examples in percent, a row a network, as a Markdown table.

    Args:
        scores: network to its scores by group, the one for all of them last.
        published: figures of others; those of ``split`` stand in parentheses.
        split: of the published figures.

    Returns:
        The table, without a line end after its last row.
    """
    metrics = ("accuracy", "precision", "recall", "f1")
    figures = {(figure.network, figure.metric): figure for figure in published if figure.split == split}
    rows = [["network", *metrics]]
    for network, own in scores.items():
        cells = []
        for metric in metrics:
            value, figure = getattr(own[-1], metric), figures.get((network, metric))
            cell = "" if value is None else percent_of(value, own[-1].deviation if metric == "accuracy" else None)
            cells.append(cell if figure is None else f"{cell} ({percent_of(figure.value, figure.deviation)})")
        rows.append([network, *cells])
    return markdown_table(rows)


def _columns(scores: Mapping[str, Sequence[Score]]) -> dict[int | str, Score]:
    """A score of each group, the groups in order and all of them last."""
    found = {score.group: score for own in scores.values() for score in own}
    return {name: found[name] for name in sorted(found, key=lambda name: (isinstance(name, str), name))}


def percent_of(value: float, deviation: float | None = None) -> str:
    """A fraction, and its deviation where there is one, in percent."""
    return f"{100 * value:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of as many cells each, the first of them the head, as a Markdown table whose columns are in line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in cells)
        + " |"
        for cells in (list(enumerate(zip(row, widths, strict=True))) for row in rows)
    ]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if not place else ":") for place, width in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
