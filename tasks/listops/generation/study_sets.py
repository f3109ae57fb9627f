"""Data sets of studies, beside those of the recipes."""

from __future__ import annotations

import numpy as np

from treemem.errors import RecipeError
from treemem.tasks.listops.generation.evaluation import values_of
from treemem.tasks.listops.generation.expression_sets import find_set
from treemem.tasks.listops.generation.generator import ListOpsDistribution, draw_distinct
from treemem.trees.forest import Forest


def expressions_of(set_name: str, size: int, seed: int) -> Forest:
    """Return ``size`` different expressions of a set, with their values as ``label``.

    Args:
        set_name: see :func:`~treemem.tasks.listops.generation.expression_sets.find_set`. What it does not name is as
            in the published files.
        size: number of expressions.
        seed: of the random choices.

    Raises:
        RecipeError: no such set.
    """
    drawn = draw_distinct(find_set(set_name, ListOpsDistribution()), size, np.random.default_rng(seed), set())
    return drawn.forest("binary").with_data(tree_data={"label": values_of(drawn).astype(np.int8)})


def with_fewer_examples(data: Forest, size: int) -> Forest:
    """Return data with the first ``size`` training examples only; the other splits stay whole.

    Raises:
        RecipeError: there are fewer training examples.
    """
    is_training = data.tree_data["split"] == "train"
    if is_training.sum() < size:
        raise RecipeError(f"there are {is_training.sum()} training examples, fewer than {size}")
    return data[~is_training | (np.cumsum(is_training) <= size)]
