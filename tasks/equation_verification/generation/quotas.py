"""How many equations of each depth and label a data set has, and how they are split."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError

_LOG = logging.getLogger(__name__)

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


class OpenQuotas:
    """Counts what is missing at each depth. An exhausted depth passes its rest on to the next.

    Args:
        quota: depth to the number of equations wanted.
        patience: a depth is exhausted after more than this number of tries in a row without a new equation.
        what: the kind of equations, for the log.
    """

    def __init__(self, quota: Mapping[int, int], patience: int, what: str) -> None:
        self.quota = dict(quota)
        self._patience = patience
        self._what = what
        self._found = dict.fromkeys(quota, 0)
        self._tries_in_vain = dict.fromkeys(quota, 0)

    @property
    def missing(self) -> dict[int, int]:
        """Depth to the number of missing equations, without complete depths."""
        return {depth: n - self._found[depth] for depth, n in self.quota.items() if n > self._found[depth]}

    @property
    def num_found(self) -> int:
        """Number of equations found, up to the quotas."""
        return sum(min(quota, self._found[depth]) for depth, quota in self.quota.items())

    def add_tries(self, tries: Mapping[int, int]) -> None:
        """Count tries at each depth."""
        for depth, count in tries.items():
            self._tries_in_vain[depth] += count

    def add_found(self, depth: int) -> None:
        """Count a new equation of ``depth``."""
        self._found[depth] += 1
        self._tries_in_vain[depth] = 0

    def pass_on(self) -> None:
        """Move the rest of each exhausted depth to the next one, and log it."""
        for depth in sorted(self.quota):
            rest = self.quota[depth] - self._found[depth]
            if rest <= 0 or self._tries_in_vain[depth] <= self._patience:
                continue
            self.quota[depth] -= rest
            if depth + 1 in self.quota:
                self.quota[depth + 1] += rest
                end = f"{rest} more are taken from depth {depth + 1}"
            else:
                end = f"the data set stays {rest} short"
            _LOG.warning("depth %d has only %d %s equations; %s", depth, self.quota[depth], self._what, end)


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
