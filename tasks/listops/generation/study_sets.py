"""Data sets of studies, beside those of the recipes."""

from __future__ import annotations

import numpy as np

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
