"""Forests of made-up shapes, drawn straight into flat arrays so that a million nodes take seconds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from treemem.trees import Forest

INNER = "node"
"""The label of every inner node."""


def words(count: int) -> list[str]:
    """Labels of leaves: ``word 0``, ``word 1``, ..."""
    return [f"word {number}" for number in range(count)]


def random_binary_trees(leaf_counts: Iterable[int], leaf_labels: Sequence[str], seed: int = 0) -> Forest:
    """Binary trees with so many leaves each, every split at a uniformly random place.

    Their heights grow with the logarithm of their sizes.
    """
    drawn = random.Random(seed)
    arity: list[int] = []
    begin = [0]
    for count in leaf_counts:
        preorder, pending = [], [count]
        while pending:
            size = pending.pop()
            preorder.append(0 if size == 1 else 2)
            if size > 1:
                left = drawn.randrange(1, size)
                pending += (left, size - left)
        arity += reversed(preorder)
        begin.append(len(arity))
    return _labelled(np.array(arity, np.int32), np.array(begin), leaf_labels, seed)


def chains(count: int, length: int, leaf_labels: Sequence[str], seed: int = 0) -> Forest:
    """Trees of ``length`` nodes, each the only child of the next."""
    arity = np.ones((count, length), np.int32)
    arity[:, 0] = 0
    return _labelled(arity.ravel(), np.arange(count + 1) * length, leaf_labels, seed)


def _labelled(arity: np.ndarray, begin: np.ndarray, leaf_labels: Sequence[str], seed: int) -> Forest:
    drawn = np.random.default_rng(seed).integers(len(leaf_labels), size=len(arity))
    label = np.where(arity == 0, drawn, len(leaf_labels))
    return Forest.from_arrays([*leaf_labels, INNER], label, arity, begin)
