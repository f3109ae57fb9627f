"""Which equations are for training, for validation and for the test."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

TRAINING_DEPTH = 7
"""Equations to this depth are for training and validation, deeper ones for the test."""

VALIDATION_SHARE = 0.2


def split_by_depth(depth: NDArray[np.integer], label: NDArray[np.integer], rng: random.Random) -> NDArray[np.str_]:
    """The split of each equation: a fifth of each depth to 7 and label for validation, the deeper ones for the test.

    Args:
        depth, label: ``[equations]``.
        rng: chooses which are for validation.
    """
    split = np.full(len(depth), "test", dtype="<U10")
    split[depth <= TRAINING_DEPTH] = "train"
    for level in range(1, TRAINING_DEPTH + 1):
        for value in np.unique(label):
            members = np.flatnonzero((depth == level) & (label == value))
            chosen = shuffled(len(members), rng)[: int(VALIDATION_SHARE * len(members) + 0.5)]
            split[members[chosen]] = "validation"
    return split


def shuffled(length: int, rng: random.Random) -> list[int]:
    """The numbers below ``length`` in random order."""
    keys = [rng.random() for _ in range(length)]
    return sorted(range(length), key=keys.__getitem__)
