"""The data sets in ``studies/shared.yaml`` that the data options of the task do not describe."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.corruption import Corruption, CorruptionOptions
from treemem.tasks.equation_verification.generation.derivation import Derivation, deepened
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import (
    VERSION,
    assembled,
    in_split,
    joined,
    kept_equations,
    training_equations,
)
from treemem.tasks.equation_verification.generation.mixed_generator import with_false_equations
from treemem.tasks.equation_verification.generation.published_procedure import deep_equations
from treemem.tasks.equation_verification.generation.quotas import TRAINING_DEPTH, depth_quotas, shuffled
from treemem.tasks.equation_verification.generation.subexpressions import subexpression_pairs
from treemem.tasks.equation_verification.generation.textbook import textbook_equations
from treemem.tasks.equation_verification.generation.verification import TRUE, verify
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

_SUBEXPRESSION_PAIRS = 20_000
_HARDER = CorruptionOptions(edits=(0.1, 0.1, 0.4, 0.4), steps=3, even_counts=True)
"""More labels replaced and functions exchanged than by default, so fewer traces in the tokens."""

_ANCESTORS = 20_000
"""Deep equations start from the true ones among this number of shallow equations."""


def part_of(forest: Forest, share: int, seed: int = 2020) -> Forest:
    """Return the equations with ``share`` percent of those for training. A smaller part is within each larger one."""
    split = forest.tree_data["split"]
    training = np.flatnonzero(split == "train")
    order = training[shuffled(len(training), random.Random(f"parts {seed}"))]
    left_out = np.ones(len(forest), bool)
    left_out[order[: round(len(order) * share / 100)]] = False
    left_out[split != "train"] = False
    return kept_equations(forest, ~left_out)


def with_harder_false_equations(equations: Forest, seed: int) -> Forest:
    """Return the equations with harder false ones for training, the same number at each depth."""
    label, depth, split = (equations.tree_data[name] for name in ("label", "depth", "split"))
    replaced = (split == "train") & (label == 0)
    size = 2 * int((split == "train").sum())
    made = training_equations(size, seed=seed, apart_from=equations, corruption=_HARDER)
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
    """Return the equations, followed by equal and unequal pairs of sub-expressions of those for training."""
    return joined(equations, subexpression_pairs(equations, _SUBEXPRESSION_PAIRS, seed=seed))


def deep(equations: Forest, per_depth: int, depths: Sequence[int], seed: int) -> Forest:
    """Generate ``per_depth`` true and false equations for the test at each depth, none of them in ``equations``.

    Args:
        equations: no new equation equals one of these up to renaming of variables and swapping of sides.
        per_depth: number of true equations at each depth, and of false ones.
        depths: the first and the last depth, from 8 to 20.
        seed: of all random choices.
    """
    rng = random.Random(f"deep equations {VERSION} {seed}")
    shallow = {depth: true for depth, (_, true) in depth_quotas(_ANCESTORS, TRAINING_DEPTH).items()}
    derivation = Derivation(shallow, rng)
    derivation.run()
    table = derivation.table
    keys = table.canonical_equations(equations)
    parents = [equation for found in derivation.stock.values() for equation in found]
    true: dict[int, list[int]] = {depth: [] for depth in range(depths[0], depths[1] + 1)}
    for depth, found in true.items():
        while len(found) < per_depth:
            fresh = []
            for _ in range(per_depth):
                parent = parents[int(rng.random() * len(parents))]
                equation = deepened(derivation.rewriter, parent, depth, rng)
                if equation is not None and (key := table.canonical_equation(equation)) not in keys:
                    keys.add(key)
                    fresh.append(equation)
            verdicts = verify(table, fresh)
            verified = [each for each, verdict in zip(fresh, verdicts, strict=True) if verdict == TRUE]
            found += verified[: per_depth - len(found)]
    options, quota = CorruptionOptions(even_counts=True), dict.fromkeys(true, per_depth)
    corruption = Corruption(derivation.rewriter, true, quota, keys, rng, options)
    corruption.run()
    return in_split(assembled(table, true, corruption.found, rng), "test")


def deep_published(equations: Forest, per_depth: int, depths: Sequence[int], seed: int) -> Forest:
    """Generate published-style equations of version 2 for the test, as many true as false ones at each depth.

    Each starts from a shallower equation of one of several populations. The arguments are those of :func:`deep`.
    """
    rng, table = random.Random(f"deep published equations {seed}"), ExpressionTable()
    keys = table.canonical_equations(equations)
    quota = dict.fromkeys(range(depths[0], depths[1] + 1), per_depth)
    true = deep_equations(table, rng, quota, keys)
    return in_split(with_false_equations(table, true, keys, rng), "test")


def textbook(equations: Forest, half: str) -> Forest:
    """Return the textbook equations of ``half``; ``equations`` have no effect."""
    found = textbook_equations(half)
    forest = Forest.from_trees([parse_equation(each.equation) for each in found])
    return forest.with_data(tree_data={"label": np.array([each.is_true for each in found], np.int8)})


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
