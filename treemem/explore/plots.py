"""Plots of results, written as PNG or SVG files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError, RecipeError, shown
from treemem.explore.label_table import short_label
from treemem.explore.memory_steps import attended, memory_steps
from treemem.explore.tables import ACCURACY, scored_alike
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.records import read_records, replacing
from treemem.trees.induced import tree_from_pointer_probabilities
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_BESIDE = 55
"""Longest name with which a legend of two columns fits the plot."""


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
) -> Figure:
    """Plot accuracy by group, such as the depth of an equation, with a line for each network.

    Scores of several seeds have bars of one standard deviation. A dashed line is the majority class, one for each set
    of examples. A dotted line in the colour of a network is its published accuracy over all groups.

    Args:
        scores: network to its scores by group. The group ``"all"`` is not drawn.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        published: published figures.
        group: name of the groups.
        split: split of the published figures.
        title: title of the plot.
        baseline: name of the majority class in the legend.
        monitor: the metric, and how it is shown.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    figure = _new_figure((8, 5.5))
    figures = {
        figure.network: figure for figure in published if (figure.split, figure.metric) == (split, monitor.metric)
    }
    axes = figure.add_subplot()
    beside_published: set[int] = set()
    for network, rows in scores.items():
        points = sorted((score.group, score) for score in rows if isinstance(score.group, int))
        groups = [name for name, _ in points]
        errors = [score.deviation or 0.0 for _, score in points]
        several = any(score.deviation is not None for _, score in points)
        (line, *_) = axes.errorbar(
            groups,
            np.array([score.metrics.get(monitor.metric) for _, score in points], float),
            yerr=errors if any(errors) else None,
            marker="o",
            label=f"{network}, {'mean of seeds' if several else 'one seed'}",
        )
        if network in figures and groups:
            axes.hlines(figures[network].value, groups[0], groups[-1], colors=line.get_color(), linestyles="dotted")
            beside_published.update(groups)
    parts = scored_alike(scores)
    for part in parts:
        by_group = {score.group: score.majority for rows in part.values() for score in rows}
        majority = [(name, value) for name, value in by_group.items() if isinstance(name, int) and value is not None]
        label = baseline if len(parts) == 1 else f"{baseline}, {', '.join(part)}"
        if majority:
            axes.plot(*zip(*sorted(majority), strict=True), color="grey", linestyle="dashed", label=label)
    if beside_published:
        span = "-".join(map(str, sorted({min(beside_published), max(beside_published)})))
        label = f"published (on the published data set, {group} {span})"
        axes.plot([], [], color="grey", linestyle="dotted", label=label)
    axes.set_title(title)
    _finish_axes(axes, group, monitor)
    _add_legend(figure, axes)
    return _written(figure, path)


Records = Iterable[Mapping[str, Any]] | str | Path
"""The records of the epochs of a run, or their file ``metrics.jsonl``."""


def plot_training(
    runs: Mapping[str, Records], path: str | Path, *, title: str = "", monitor: Monitor = ACCURACY
) -> Figure:
    """Plot the loss and a validation metric by epoch, with a colour for each run.

    The training loss is a solid line, the validation loss a dashed one. A dot marks the best epoch.

    Args:
        runs: name to records, or to a file of records.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        title: title of the plot.
        monitor: the metric. Records hold it as ``validation_METRIC``.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or a file cannot be read or written.
        ParseError: a file does not hold records.
    """
    figure = _new_figure((9, 4))
    losses, metrics = figure.subplots(1, 2)
    for name, records in runs.items():
        epochs = [record.fields for record in read_records(records)] if isinstance(records, (str, Path)) else records
        points = [record for record in epochs if "epoch" in record]
        (line, *_) = losses.plot(*_points(points, "loss"), label=name)
        losses.plot(*_points(points, "validation_loss"), color=line.get_color(), linestyle="dashed")
        field = f"validation_{monitor.metric}"
        metrics.plot(*_points(points, field), color=line.get_color())
        best = None
        for point in points:
            losses_of = (entry.get("validation_loss") for entry in (point, best or {}))
            if field in point and (best is None or monitor.is_better(point[field], best[field], *losses_of)):
                best = point
        if best is not None:
            metrics.plot(best["epoch"], best[field], color=line.get_color(), marker="o")
    _finish_axes(losses, "epoch", Monitor("loss (dashed: validation)", percent=False))
    _finish_axes(metrics, "epoch", monitor._replace(metric=f"validation {monitor.metric}"))
    figure.suptitle(title)
    _add_legend(figure, losses)
    return _written(figure, path)


def _points(epochs: list[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Return the epochs whose record has ``name``, and its values."""
    recorded = [record for record in epochs if isinstance(record.get(name), (int, float))]
    return [record["epoch"] for record in recorded], [record[name] for record in recorded]


def _finish_axes(axes: Any, x: str, y: Monitor) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_xlabel(x)
    axes.set_ylabel(y.metric)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if y.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        if axes.dataLim.height == 0:  # all points on one line, around which matplotlib would leave room below 0 %
            axes.set_ylim(-0.02, 1.02)


def _add_legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = 2 if max(map(len, labels)) <= _LONGEST_BESIDE else 1
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize="small")


def plot_heat_maps(
    maps: Mapping[str, ArrayLike],
    path: str | Path,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    axes_names: tuple[str, str] = ("", ""),
    title: str = "",
) -> Figure:
    """Draw tables of numbers side by side as heat maps with one scale. A cell that is NaN stays empty.

    Args:
        maps: name to numbers ``[rows, columns]``.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        rows, columns: names of the rows and columns.
        axes_names: what the columns and rows are.
        title: title of the plot.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    tables = {name: np.asarray(values, np.float64) for name, values in maps.items()}
    numbers = np.concatenate([values[np.isfinite(values)] for values in tables.values()])
    figure = _new_figure((1.5 + len(tables) * max(2.2, 0.42 * len(columns)), max(2.2, 0.32 * len(rows) + 1.2)))
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    for axes, (name, values) in zip(panels, tables.items(), strict=True):
        image = axes.imshow(values, cmap="viridis", vmin=numbers.min(), vmax=numbers.max(), aspect="auto")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel(axes_names[0])
        axes.set_title(name)
    panels[0].set_ylabel(axes_names[1])
    figure.suptitle(title)
    figure.colorbar(image, ax=list(panels), shrink=0.8)
    return _written(figure, path)


def plot_curves(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    path: str | Path,
    *,
    axes_names: tuple[str, str],
    title: str = "",
) -> Figure:
    """Plot curves against a cost, with a panel for each group of curves and one scale for all of them.

    Args:
        panels: title of a panel to name to points ``(cost, value)``. Costs are on a logarithmic scale.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        axes_names: what costs and values are.
        title: title of the plot.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    figure = _new_figure((9, 4 * len(panels)))
    rows = figure.subplots(len(panels), squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, (name, curves) in zip(rows, panels.items(), strict=True):
        for place, (curve, points) in enumerate(curves.items()):
            style = ("solid", "dashed", "dotted")[place // 10 % 3]  # matplotlib has ten colours
            axes.plot(*zip(*points, strict=True), label=curve, linestyle=style, marker=".")
        axes.set_xscale("log")
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(axes_names[1])
        axes.set_title(name)
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(title)
    return _written(figure, path)


def plot_tree(tree: Tree, states: ArrayLike, path: str | Path, *, what: str = "stack", title: str = "") -> Figure:
    """Draw a small tree with the state of each node as a heat map below its label, with row 0 of a stack on top.

    Args:
        tree: the tree.
        states: ``[nodes, rows, width]`` or ``[nodes, width]``, in post-order, such as ``states.S`` of a batch of one
            tree.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        what: name of the states in the legend.
        title: title of the plot.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
        GraphError: ``tree`` is not a tree, or there is not one state for each node.
    """
    if not isinstance(tree, Tree):
        raise GraphError(f"plot_tree draws a Tree, not {shown(tree)}; task.parse makes one of a text")
    maps = np.asarray(states, np.float64)
    maps = maps[:, None] if maps.ndim == 2 else maps
    if maps.ndim != 3 or len(maps) != tree.size:
        raise GraphError(
            f"states are {list(np.shape(states))}; a tree of {tree.size} nodes needs [{tree.size}, rows, width]"
        )
    place, edges = _layout(tree)
    leaves, height = place[:, 0].max() + 1, tree.height
    figure = _new_figure((max(3.5, 1.15 * leaves + 1), max(2.0, 1.05 * (height + 1) + 0.6)))
    axes = figure.add_subplot()
    most = float(np.abs(maps[np.isfinite(maps)]).max(initial=0)) or 1.0
    for node, (subtree, (x, y)) in enumerate(zip(tree.postorder(), place, strict=True)):
        extent = (x - 0.42, x + 0.42, y - 0.3, y + 0.08)
        image = axes.imshow(maps[node], cmap="PuOr_r", vmin=-most, vmax=most, extent=extent, aspect="auto")
        label = short_label(subtree.label, subtree.value)
        axes.text(x, y + 0.12, label, ha="center", va="bottom", fontsize="small", parse_math=False)
    for child, parent in edges:
        x, y = zip(place[parent] - (0, 0.32), place[child] + (0, 0.36), strict=True)
        axes.plot(x, y, color="0.7", linewidth=1, zorder=0)
    axes.set_xlim(-0.6, leaves - 0.4)
    axes.set_ylim(-0.4, height + 0.5)
    axes.axis("off")
    axes.set_title(title)
    figure.colorbar(image, ax=axes, label=what, shrink=0.8)
    return _written(figure, path)


def plot_memory_run(record: Mapping[str, Any], path: str | Path, *, title: str = "") -> Figure:
    """Draw a run of an Ordered Memory: above the induced tree, below a column of slots for each token.

    The colour of a slot is its probability. Its text is what it holds then, if the memory attends to the likeliest slot
    only; the attended slot has a frame. Slots that are never attended to are left out.

    Args:
        record: of :func:`~treemem.explore.memory_run.memory_run_record`.
        path: the file to write, SVG if its name ends in ``.svg``, else PNG.
        title: title of the plot.

    Returns:
        The figure that was written.

    Raises:
        RecipeError: matplotlib is not installed, or the file cannot be written.
    """
    tokens, table = record["tokens"], np.asarray(record["probabilities"], np.float64)
    slots = table.shape[1]
    steps = memory_steps(tokens, attended(record)[0], slots)
    lowest = min([step.slot for step in steps if step.slot is not None], default=slots)
    used = range(slots, lowest - 1, -1)
    tree = tree_from_pointer_probabilities(table, tokens)
    figure = _new_figure((1 + 1.15 * len(tokens), 0.4 * (tree.height + 1) + 0.75 * len(used) + 0.8))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[0.4 * (tree.height + 1), 0.75 * len(used)])
    place, edges = _layout(tree)
    for child, parent in edges:
        above.plot(*zip(place[parent], place[child], strict=True), color="0.6", linewidth=1)
    for (x, y), node in zip(place, tree.postorder(), strict=True):
        if node.is_leaf:
            above.text(x, y - 0.15, node.label, ha="center", va="top", parse_math=False)
    above.set_ylim(-0.9, tree.height + 0.2)
    above.axis("off")
    light = 2.0  # so that text can be read on the darkest colour, that of 1
    below.imshow(table[:, lowest - 1 :].T[::-1], cmap="Blues", vmin=0, vmax=light, aspect="auto")
    for column, step in enumerate(steps):
        for row, slot in enumerate(used):
            if slot in step.memory:
                content = textwrap.fill(" ".join(step.memory[slot].replace("(", "").replace(")", "").split()), 12)
                below.text(column, row, content, ha="center", va="center", fontsize="small", parse_math=False)
            if slot == step.slot:
                left, right, low, high = column - 0.48, column + 0.48, row - 0.47, row + 0.47
                below.plot([left, right, right, left, left], [low, low, high, high, low], color="black")
    below.set_xticks(range(len(tokens)), [f"token {number}" for number in range(1, len(tokens) + 1)])
    below.set_yticks(range(len(used)), [f"slot {slot}" for slot in used])
    figure.suptitle(title)
    return _written(figure, path)


def _layout(tree: Tree) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """Return the position of each node ``[nodes, 2]``, parents above the middle of their children, and the edges."""
    place = np.zeros((tree.size, 2))
    edges: list[tuple[int, int]] = []  # child, parent
    waiting: list[int] = []
    leaves = 0
    for number, node in enumerate(tree.postorder()):
        children = waiting[len(waiting) - node.arity :]
        del waiting[len(waiting) - node.arity :]
        waiting.append(number)
        edges += [(child, number) for child in children]
        place[number] = (place[children[0], 0] + place[children[-1], 0]) / 2 if children else leaves, node.height
        leaves += node.is_leaf
    return place, edges


def _new_figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RecipeError("matplotlib is not installed; pip install 'treemem[plot]'") from error
    return Figure(figsize=size, layout="constrained")


def _written(figure: Figure, path: str | Path) -> Figure:
    from matplotlib import rc_context

    form = "svg" if Path(path).suffix == ".svg" else "png"
    with replacing(path) as temporary, rc_context({"svg.hashsalt": "treemem"}):
        figure.savefig(temporary, format=form, metadata={"Date": None} if form == "svg" else None)
    return figure
