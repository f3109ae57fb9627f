"""What trained stack networks do with their stacks: mean push, pop and no-op by function and height."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from treemem.data.loader import BatchOptions
from treemem.evaluation_mode import in_evaluation_mode
from treemem.model import Model
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.measured_models import unmeasured_models
from treemem.trees.forest import Forest

ACTIONS = ("push", "pop", "no_op")
_ALL = "all"


def mean_actions(model: Model, equations: Forest) -> list[dict[str, Any]]:
    """Return the mean of each action over the functions of equations.

    Args:
        model: a model with a :class:`~treemem.nn.StackTreeRNN` or :class:`~treemem.nn.StackTreeLSTM`.
        equations: trees with root ``Equality``.

    Returns:
        A row for each function and height of a node above its deepest leaf that occur, and for all functions of a
        height, all heights of a function, and all nodes: ``function``, ``height``, ``nodes``, and the mean of each
        action that the network has, over nodes and coordinates.
    """
    labels, heights, means = [], [], []
    with in_evaluation_mode(model):
        examples = model.task.examples(equations)
        for batch in examples.loader(model.vocabulary, None, BatchOptions(256)).batches():
            trace = model.encoder(batch, trace=True).trace
            sides = np.asarray(batch.example_ids)[:, None] * 2 + np.arange(2)
            forest = examples.forest[sides.ravel()]
            inner = forest.arity > 0
            labels.append(np.array(forest.labels)[forest.label[inner]])
            heights.append(forest.height()[inner])
            means.append({name: trace[name].numpy()[inner].mean(1) for name in ACTIONS if name in trace})
    label, height = np.concatenate(labels), np.concatenate(heights)
    mean = {name: np.concatenate([part[name] for part in means]) for name in means[0]}
    rows = []
    for function in (*sorted(set(label.tolist())), _ALL):
        for level in (*sorted(set(height.tolist())), _ALL):
            here = ((label == function) | (function == _ALL)) & ((height == level) | (level == _ALL))
            if here.any():
                means_here = {name: round(float(values[here].mean()), 6) for name, values in mean.items()}
                rows.append({"function": function, "height": level, "nodes": int(here.sum()), **means_here})
    return rows


def action_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run: its ``actions`` in the test equations; see :func:`unmeasured_models`."""
    for run, model, first in unmeasured_models(done, before):
        equations = done.data[run.data]
        yield {**first, "actions": mean_actions(model, equations[equations.tree_data["split"] == "test"])}


def action_tables(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of :func:`treemem.explore.plots.plot_heat_maps` for the mean actions of runs of a row."""
    rows = [row for record in records for row in record["actions"]]
    functions = list(dict.fromkeys(row["function"] for row in rows))
    heights = list(dict.fromkeys(row["height"] for row in rows))
    maps = {}
    for action in ACTIONS:
        values = np.full((len(records), len(functions), len(heights)), np.nan)
        for number, record in enumerate(records):
            for row in record["actions"]:
                if action in row:
                    values[number, functions.index(row["function"]), heights.index(row["height"])] = row[action]
        if np.isfinite(values).any():
            maps[action.replace("_", "-")] = values.mean(0)
    columns = [str(height) for height in heights]
    return {"maps": maps, "rows": functions, "columns": columns, "axes_names": ("height", "")}
