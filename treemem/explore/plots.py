"""Plots of results, written as PNG or SVG files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError, RecipeError
from treemem.explore.label_table import short_label
from treemem.explore.tables import ACCURACY, scored_alike
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.records import read_records, replacing
from treemem.trees.tree import Tree

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
    monitor: Monitor = ACCURACY,
) -> None:
    """Plot accuracy against the group (the depth of an equation), a line a network.

    Scores of several seeds get bars of one deviation; the legend says which scores are of one seed. A dashed line is
    their ``majority``, one for each set of examples that they are of; a dotted one in a network's colour is its
    published accuracy over all groups, on the data set that it was published for.

    Args:
        scores: network to its scores by group; one group may be ``"all"``, which is not drawn.
        path: the file to write, PNG or, where its name ends in ``.svg``, SVG.
        published: figures of others.
        group: what the groups are.
        split: of the published figures.
        title: stands above the plot.
        baseline: what the legend calls ``majority``.
        monitor: which metric, and how it is shown.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    _write(
        accuracy_figure(scores, published, group=group, split=split, title=title, baseline=baseline, monitor=monitor),
        path,
    )


def accuracy_figure(
    scores: Mapping[str, Sequence[Score]],
    published: Iterable[PublishedFigure] = (),
    *,
    group: str = "depth",
    split: str = "test",
    title: str = "",
    baseline: str = "majority class",
    monitor: Monitor = ACCURACY,
) -> Figure:
    """What :func:`plot_accuracy` writes, as a figure of matplotlib.

    Raises:
        RecipeError: matplotlib is not installed.
    """
    figure = _new_figure((8, 5.5))
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figures = {
        figure.network: figure for figure in published if (figure.split, figure.metric) == (split, monitor.metric)
    }
    axes = figure.add_subplot()
    beside_published: set[int] = set()
    for network, own in scores.items():
        points = sorted((score.group, score) for score in own if isinstance(score.group, int))
        groups = [name for name, _ in points]
        errors = [score.deviation or 0.0 for _, score in points]
        values = [getattr(score, monitor.metric) for _, score in points]
        several = any(score.deviation is not None for _, score in points)
        label = f"{network}, {'mean of seeds' if several else 'one seed'}"
        (line, *_) = axes.errorbar(groups, values, yerr=errors if any(errors) else None, marker="o", label=label)
        if network in figures and groups:
            axes.hlines(figures[network].value, groups[0], groups[-1], colors=line.get_color(), linestyles="dotted")
            beside_published.update(groups)
    parts = scored_alike(scores)
    for part in parts:
        majority = {
            score.group: score.majority
            for own in part.values()
            for score in own
            if isinstance(score.group, int) and score.majority is not None
        }
        label = baseline if len(parts) == 1 else f"{baseline}, {', '.join(part)}"
        if majority:
            axes.plot(*zip(*sorted(majority.items()), strict=True), color="grey", linestyle="dashed", label=label)
    if beside_published:
        span = "-".join(map(str, sorted({min(beside_published), max(beside_published)})))
        label = f"published (on the published data set, {group} {span})"
        axes.plot([], [], color="grey", linestyle="dotted", label=label)
    axes.set_xlabel(group)
    axes.set_ylabel(monitor.metric)
    axes.set_title(title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if monitor.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(alpha=0.3)
    if labels := axes.get_legend_handles_labels()[1]:
        columns = 2 if max(map(len, labels)) <= _LONGEST_BESIDE else 1
        figure.legend(loc="outside lower center", ncols=columns, fontsize="small")
    return figure


Records = Iterable[Mapping[str, Any]] | str | Path
"""What a run said of each epoch: its records, or the file ``metrics.jsonl`` that holds them."""


def plot_training(runs: Mapping[str, Records], path: str | Path, *, title: str = "") -> None:
    """Plot loss and validation accuracy against the epoch, a colour a run.

    The loss of training is a line, that of validation dashed; a dot marks the epoch of the best validation accuracy.

    Args:
        runs: name to records, or to a file of them.
        path: the file to write, PNG or, where its name ends in ``.svg``, SVG.
        title: stands above the plot.

    Raises:
        RecipeError: matplotlib is not installed, a file cannot be read or written, or records are not those of epochs.
        ParseError: a file that holds no records.
    """
    _write(training_figure(runs, title=title), path)


def training_figure(runs: Mapping[str, Records], *, title: str = "") -> Figure:
    """What :func:`plot_training` writes, as a figure of matplotlib; errors as there."""
    figure = _new_figure((9, 4))
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    losses, accuracies = figure.subplots(1, 2)
    for name, records in runs.items():
        epochs = [record.fields for record in read_records(records)] if isinstance(records, (str, Path)) else records
        points = [_checked_epoch(name, record) for record in epochs]
        (line, *_) = losses.plot(*_points(points, "loss"), label=name)
        losses.plot(*_points(points, "validation_loss"), color=line.get_color(), linestyle="dashed")
        x, y = _points(points, "validation_accuracy")
        accuracies.plot(x, y, color=line.get_color(), label=name)
        if y:
            best = int(np.argmax(y))
            accuracies.plot(x[best], y[best], color=line.get_color(), marker="o")
    losses.set_ylabel("loss (dashed: validation)")
    accuracies.set_ylabel("validation accuracy")
    accuracies.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes in (losses, accuracies):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    if runs:
        handles, labels = losses.get_legend_handles_labels()
        columns = 2 if max(map(len, labels)) <= _LONGEST_BESIDE else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small")
    return figure


def _checked_epoch(name: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(record.get("epoch"), int):
        raise RecipeError(f"{name}: a record of an epoch has its number under 'epoch', not {sorted(record)}")
    return record


def _points(epochs: list[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """The epochs that tell ``name``, and what they tell."""
    told = [record for record in epochs if isinstance(record.get(name), (int, float))]
    return [record["epoch"] for record in told], [record[name] for record in told]


def plot_tree(tree: Tree, states: ArrayLike, path: str | Path, *, what: str = "stack", title: str = "") -> None:
    """Draw a small tree with the state of each node as a heat map below its label: the stack, row 0 above.

    Args:
        tree: the tree.
        states: ``[nodes, rows, width]``, or ``[nodes, width]``, in post-order, as ``states.S`` of a batch of one tree.
        path: the file to write, PNG or, where its name ends in ``.svg``, SVG.
        what: the legend calls them so.
        title: stands above the plot.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
        GraphError: states that are not one for each node.
    """
    _write(tree_figure(tree, states, what=what, title=title), path)


def tree_figure(tree: Tree, states: ArrayLike, *, what: str = "stack", title: str = "") -> Figure:
    """What :func:`plot_tree` writes, as a figure of matplotlib; errors as there."""
    maps = np.asarray(states, np.float64)
    maps = maps[:, None] if maps.ndim == 2 else maps
    if maps.ndim != 3 or len(maps) != tree.size:
        raise GraphError(
            f"states are {list(np.shape(states))}; a tree of {tree.size} nodes needs [{tree.size}, rows, width]"
        )
    place = _places(tree)
    leaves, height = place[:, 0].max() + 1, tree.height
    figure = _new_figure((max(3.5, 1.15 * leaves + 1), max(2.0, 1.05 * (height + 1) + 0.6)))
    axes = figure.add_subplot()
    most = float(np.abs(maps[np.isfinite(maps)]).max(initial=0)) or 1.0
    for node, (subtree, (x, y)) in enumerate(zip(tree.postorder(), place, strict=True)):
        image = axes.imshow(
            maps[node],
            cmap="PuOr_r",
            vmin=-most,
            vmax=most,
            extent=(x - 0.42, x + 0.42, y - 0.3, y + 0.08),
            aspect="auto",
        )
        axes.text(
            x,
            y + 0.12,
            short_label(subtree.label, subtree.value),
            ha="center",
            va="bottom",
            fontsize="small",
            parse_math=False,
        )
    for x, y, parent_x, parent_y in _edges(tree, place):
        axes.plot([parent_x, x], [parent_y - 0.32, y + 0.36], color="0.7", linewidth=1, zorder=0)
    axes.set_xlim(-0.6, leaves - 0.4)
    axes.set_ylim(-0.4, height + 0.5)
    axes.axis("off")
    axes.set_title(title)
    figure.colorbar(image, ax=axes, label=what, shrink=0.8)
    return figure


def _places(tree: Tree) -> NDArray[np.float64]:
    """Where each node stands: leaves side by side, parents above the middle of their children, ``[nodes, 2]``."""
    found: list[tuple[float, float]] = []
    open_places: list[float] = []
    leaves = 0
    for node in tree.postorder():
        if node.is_leaf:
            x, leaves = float(leaves), leaves + 1
        else:
            below = open_places[len(open_places) - node.arity :]
            del open_places[len(open_places) - node.arity :]
            x = (below[0] + below[-1]) / 2
        open_places.append(x)
        found.append((x, float(node.height)))
    return np.array(found)


def _edges(tree: Tree, place: NDArray[np.float64]) -> list[tuple[float, float, float, float]]:
    """Of each edge the place of the child and that of the parent."""
    edges = []
    waiting: list[int] = []
    for number, node in enumerate(tree.postorder()):
        for child in waiting[len(waiting) - node.arity :] if node.arity else ():
            edges.append((*place[child].tolist(), *place[number].tolist()))
        del waiting[len(waiting) - node.arity :]
        waiting.append(number)
    return edges


def _new_figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RecipeError("matplotlib is not installed; pip install 'treemem[plot]'") from error
    return Figure(figsize=size, layout="constrained")


def _write(figure: Figure, path: str | Path) -> None:
    from matplotlib import rc_context

    form = "svg" if Path(path).suffix == ".svg" else "png"
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "treemem"}):
        figure.savefig(temporary, format=form, metadata={"Date": None} if form == "svg" else None)
