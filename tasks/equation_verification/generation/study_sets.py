"""The data sets of the studies that options of the task's data do not describe; ``studies/shared.yaml`` names them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.more_data import (
    deep_equations,
    joined,
    kept_equations,
    training_equations,
)
from treemem.tasks.equation_verification.generation.splits import shuffled
from treemem.tasks.equation_verification.generation.subexpressions import subexpression_pairs
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.forest import Forest

_SUBEXPRESSION_PAIRS = 20_000
_FALSE_STEPS = 3
_HARDER_EDITS = (0.1, 0.1, 0.4, 0.4)  # more labels replaced and functions exchanged: fewer traces in the tokens


def part_of(forest: Forest, share: int, seed: int = 2020) -> Forest:
    """Return the equations with fewer of them to train on. A smaller part is within each larger one.

    Args:
        forest: with ``split`` and ``source`` in its ``tree_data``.
        share: percent of the training equations that are kept.
        seed: of which are left out.
    """
    split = forest.tree_data["split"]
    training = np.flatnonzero(split == "train")
    order = training[shuffled(len(training), random.Random(f"parts {seed}"))]
    left_out = np.ones(len(forest), bool)
    left_out[order[: round(len(order) * share / 100)]] = False
    left_out[split != "train"] = False
    return kept_equations(forest, ~left_out)


def with_harder_false_equations(equations: Forest, seed: int) -> Forest:
    """Return the equations with other false ones for training, as many of each depth, farther from true ones."""
    label, depth, split = (equations.tree_data[name] for name in ("label", "depth", "split"))
    replaced = (split == "train") & (label == 0)
    made = training_equations(
        2 * int((split == "train").sum()),
        seed=seed,
        apart_from=equations,
        false_steps=_FALSE_STEPS,
        edits=_HARDER_EDITS,
    )
    false = np.flatnonzero(made.tree_data["label"] == 0)
    wanted, spare = Counter(depth[replaced].tolist()), 0
    chosen: list[int] = []
    for level in sorted(wanted):
        there = false[made.tree_data["depth"][false] == level]
        taken = min(len(there), wanted[level] + spare)
        spare += wanted[level] - taken
        chosen += there[:taken].tolist()
    harder = kept_equations(made, np.isin(np.arange(len(made)), chosen))
    return joined(kept_equations(equations, ~replaced), harder)


def with_subexpressions(equations: Forest, seed: int) -> Forest:
    """Return the equations with pairs of equal sub-expressions of those for training, and as many unequal pairs."""
    return joined(equations, subexpression_pairs(equations, _SUBEXPRESSION_PAIRS, seed=seed))


def deep(equations: Forest, per_depth: int, depths: Sequence[int], seed: int) -> Forest:
    """Return as many true as false equations of each depth, each deepened on its own, none of them in ``equations``."""
    first, last = depths
    return deep_equations(per_depth, range(first, last + 1), seed=seed, apart_from=equations)


def labelled(path: Path, holds: str | None = None) -> Forest:
    """Return the labelled equations of a file; with ``holds``, those whose field ``holds`` has this value.

    Raises:
        RecipeError: an equation without a label, or no equation that holds so.
    """
    keep = [] if holds is None else ["holds"]
    forest = read_equations(path, variables="indexed", keep=keep, strict=True).forest
    if holds is not None:
        forest = forest[forest.tree_data["holds"] == holds]
        if not len(forest):
            raise RecipeError(f"{path} has no equation whose field 'holds' is {holds!r}; add some, or leave it out")
    unlabelled = int((forest.tree_data["label"] < 0).sum())
    if unlabelled:
        raise RecipeError(f"{path} has {unlabelled} equations without a label; label them, as all are scored")
    return forest
