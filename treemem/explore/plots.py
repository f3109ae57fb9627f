"""Plots of results, written as PNG or SVG files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treemem.errors import RecipeError
from treemem.records import replacing
from treemem.task import PublishedFigure, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_BESIDE = 55
"""Two columns of legend, of so many characters each, are as wide as the plot."""


def plot_accuracy(
    scores: Mapping[str, Sequence[Score]],
    path: str | Path,
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    title: str = "",
    baseline: str = "majority class",
) -> None:
    """Plot accuracy against the group (the depth of an equation), a line a network.

    Scores of several seeds get bars of one deviation; the legend says which scores are of one seed. A dashed line is
    their ``majority``; a dotted one in a network's colour is its published accuracy over all groups, on the data set
    that it was published for.

    Args:
        scores: network to its scores by group; one group may be ``"all"``, which is not drawn.
        path: the file to write, PNG or, where its name ends in ``.svg``, SVG.
        published: figures of others.
        group: what the groups are.
        split: of the published figures.
        title: stands above the plot.
        baseline: what the legend calls ``majority``.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    figure = accuracy_figure(scores, published, group=group, split=split, title=title, baseline=baseline)
    from matplotlib import rc_context

    form = "svg" if Path(path).suffix == ".svg" else "png"
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "treemem"}):
        figure.savefig(temporary, format=form, metadata={"Date": None} if form == "svg" else None)


def accuracy_figure(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    title: str = "",
    baseline: str = "majority class",
) -> Figure:
    """What :func:`plot_accuracy` writes, as a figure of matplotlib.

    Raises:
        RecipeError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter
    except ImportError as error:
        raise RecipeError("matplotlib is not installed; pip install 'treemem[plot]'") from error
    figures = {figure.network: figure for figure in published if (figure.split, figure.metric) == (split, "accuracy")}
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axes = figure.add_subplot()
    majority: dict[int, float] = {}
    beside_published: set[int] = set()
    for network, own in scores.items():
        points = sorted((score.group, score) for score in own if isinstance(score.group, int))
        groups = [name for name, _ in points]
        majority.update((name, score.majority) for name, score in points)
        errors = [score.deviation or 0.0 for _, score in points]
        accuracy = [score.accuracy for _, score in points]
        several = any(score.deviation is not None for _, score in points)
        label = f"{network}, {'mean of seeds' if several else 'one seed'}"
        (line, *_) = axes.errorbar(groups, accuracy, yerr=errors if any(errors) else None, marker="o", label=label)
        if network in figures and groups:
            axes.hlines(figures[network].value, groups[0], groups[-1], colors=line.get_color(), linestyles="dotted")
            beside_published.update(groups)
    if majority:
        names = sorted(majority)
        axes.plot(names, [majority[name] for name in names], color="grey", linestyle="dashed", label=baseline)
    if beside_published:
        span = "-".join(map(str, sorted({min(beside_published), max(beside_published)})))
        label = f"published (on the published data set, {group} {span})"
        axes.plot([], [], color="grey", linestyle="dotted", label=label)
    axes.set_xlabel(group)
    axes.set_ylabel("accuracy")
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    if labels := axes.get_legend_handles_labels()[1]:
        columns = 2 if max(map(len, labels)) <= _LONGEST_BESIDE else 1
        figure.legend(loc="outside lower center", ncols=columns, fontsize="small")
    return figure
