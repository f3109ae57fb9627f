"""How many equations of each depth and label a data set has, and how they are split."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError

PUBLISHED_SIZE = 41_894

PUBLISHED_COUNTS: dict[int, tuple[int, int]] = {
    1: (21, 11),
    2: (355, 202),
    3: (2542, 1576),
    4: (7508, 4580),
    5: (9442, 5476),
    6: (7957, 4456),
    7: (6146, 3319),
    8: (3634, 1909),
    9: (1999, 1047),
    10: (1124, 552),
    11: (677, 343),
    12: (300, 150),
    13: (189, 96),
}
"""Depth to the number of equations, and of correct ones among them, in the data of Arabshahi et al. 2020."""

DEEPEST = 20
_FALL = 0.63
"""Beyond depth 13, counts fall by this factor per level, as from 12 to 13."""

TRAINING_DEPTH = 7
"""Equations to this depth are for training and validation, deeper ones for the test."""

VALIDATION_SHARE = 0.2


def depth_quotas(size: int, max_depth: int = 13) -> dict[int, tuple[int, int]]:
    """Return the published histogram, scaled to ``size`` equations of depth 1 to ``max_depth``.

    Returns:
        Depth to (number of false equations, number of true ones); the numbers add up to ``size``.

    Raises:
        RecipeError: ``size`` is negative, or ``max_depth`` is not from 2 to 20.

    Example:
        >>> depth_quotas(1000)[5]
        (95, 131)
    """
    size = checked_count("size", size, least=0)
    if not 2 <= checked_count("max_depth", max_depth, least=2) <= DEEPEST:
        raise RecipeError(f"max_depth must be at most {DEEPEST}, not {max_depth}")
    depths = range(1, int(max_depth) + 1)
    shares = np.array([_count(depth, label) for depth in depths for label in (0, 1)], dtype=np.float64)
    exact = size * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    missing = int(size - counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return {depth: (int(counts[2 * row]), int(counts[2 * row + 1])) for row, depth in enumerate(depths)}


def _count(depth: int, label: int) -> float:
    if depth not in PUBLISHED_COUNTS:
        return _count(max(PUBLISHED_COUNTS), label) * _FALL ** (depth - max(PUBLISHED_COUNTS))
    total, correct = PUBLISHED_COUNTS[depth]
    return correct if label else total - correct


def split_by_depth(depth: NDArray[np.integer], label: NDArray[np.integer], rng: random.Random) -> NDArray[np.str_]:
    """Return the split of each equation: a random fifth of each label at depths 1-7 is validation, deeper ones test."""
    split = np.full(len(depth), "test", dtype="<U10")
    split[depth <= TRAINING_DEPTH] = "train"
    for level in range(1, TRAINING_DEPTH + 1):
        for value in np.unique(label):
            members = np.flatnonzero((depth == level) & (label == value))
            chosen = shuffled(len(members), rng)[: int(VALIDATION_SHARE * len(members) + 0.5)]
            split[members[chosen]] = "validation"
    return split


def shuffled(length: int, rng: random.Random) -> list[int]:
    """Return the numbers below ``length`` in random order."""
    keys = [rng.random() for _ in range(length)]
    return sorted(range(length), key=keys.__getitem__)
