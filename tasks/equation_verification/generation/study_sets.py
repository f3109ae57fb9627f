"""The data sets in ``studies/shared.yaml`` that the data options of the task do not describe."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import in_split, with_false_equations
from treemem.tasks.equation_verification.generation.published_procedure import deep_equations
from treemem.tasks.equation_verification.generation.quotas import shuffled
from treemem.tasks.equation_verification.generation.textbook import textbook_equations
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_equation


def part_of(forest: Forest, share: int, seed: int = 2020) -> Forest:
    """Return the equations with ``share`` percent of those for training. A smaller part is within each larger one."""
    split = forest.tree_data["split"]
    training = np.flatnonzero(split == "train")
    order = training[shuffled(len(training), random.Random(f"parts {seed}"))]
    left_out = np.ones(len(forest), bool)
    left_out[order[: round(len(order) * share / 100)]] = False
    left_out[split != "train"] = False
    return forest[~left_out]


def deep_published(equations: Forest, per_depth: int, depths: Sequence[int], seed: int) -> Forest:
    """Generate published-style equations for the test.

    Each starts from a shallower equation of one of several populations.

    Args:
        equations: no new equation equals one of these up to renaming of variables and swapping of sides.
        per_depth: number of true equations at each depth, and of false ones.
        depths: the first and the last depth, from 8 to 20.
        seed: of all random choices.
    """
    rng, table = random.Random(f"deep published equations {seed}"), ExpressionTable()
    keys = table.canonical_equations(equations)
    quota = dict.fromkeys(range(depths[0], depths[1] + 1), per_depth)
    true = deep_equations(table, rng, quota, keys)
    return in_split(with_false_equations(table, true, keys, rng), "test")


def textbook(equations: Forest, half: str) -> Forest:
    """Return the textbook equations of ``half``; ``equations`` have no effect."""
    entries = textbook_equations(half)
    forest = Forest.from_trees([parse_equation(entry.equation) for entry in entries])
    return forest.with_data(tree_data={"label": np.array([entry.is_true for entry in entries], np.int8)})


def labelled(path: Path, holds: str | None = None) -> Forest:
    """Return the labelled equations of a file; with ``holds``, those whose field ``holds`` has this value.

    Raises:
        RecipeError: an equation has no label, or no equation has this value.
    """
    keep = [] if holds is None else ["holds"]
    forest = read_equations(path, variables="indexed", keep=keep, strict=True).forest
    if holds is not None:
        forest = forest[forest.tree_data["holds"] == holds]
        if not len(forest):
            raise RecipeError(f"{path} has no equation whose field 'holds' is {holds!r}; add some, or omit the set")
    unlabelled = int((forest.tree_data["label"] < 0).sum())
    if unlabelled:
        raise RecipeError(f"{path} has {unlabelled} equations without a label; label all of them")
    return forest
