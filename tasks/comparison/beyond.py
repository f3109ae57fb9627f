"""The test examples beyond training: deeper, longer, of more operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treemem.errors import RecipeError
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS


def divided(task: Task, forest: Forest) -> tuple[Forest, Forest]:
    """Return data without, and with only, the test examples of higher groups than any training example.

    If that leaves no test example, every second validation example becomes one.

    Raises:
        RecipeError: there is no test example of a higher group.
    """
    examples = task.examples(forest)
    train, validation, test = (examples.part(name) for name in SPLITS)
    most = examples.group[train].max()
    is_beyond = np.zeros(len(examples), bool)
    is_beyond[test] = examples.group[test] > most
    if not is_beyond.any():
        raise RecipeError(f"a comparison needs test examples beyond the {task.group} {most} of training")
    split = np.array(SPLITS)[examples.split]
    if is_beyond[test].all():
        split[validation[1::2]] = "test"
    per_example = len(forest) // len(examples)
    forest = forest.with_data(tree_data={**forest.tree_data, "split": np.repeat(split, per_example)})
    of_tree = np.repeat(is_beyond, per_example)
    return forest[~of_tree], forest[of_tree]


def together(forests: Sequence[Forest]) -> Forest:
    """Return the trees of several forests, with the data that all of them have."""
    shared = [name for name in forests[0].tree_data if all(name in forest.tree_data for forest in forests)]
    return Forest.concatenate(
        [
            forest.with_data(node_data=forest.node_data, tree_data={name: forest.tree_data[name] for name in shared})
            for forest in forests
        ]
    )
