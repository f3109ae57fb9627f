"""The words that training sentences have often enough to be known."""

from __future__ import annotations

import numpy as np

from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS


def known_words(forest: Forest, least_count: int) -> list[str]:
    """Return the words that the training sentences have at least ``least_count`` times, in the order of the labels.

    Args:
        forest: sentences as trees whose leaves are words. Without splits all of them are training sentences.
        least_count: how often.
    """
    split = forest.tree_data.get("split", np.full(len(forest), SPLITS[0]))
    training = forest[np.flatnonzero(split == SPLITS[0])]
    count = np.bincount(training.label[training.arity == 0], minlength=len(forest.labels))
    return [word for word, times in zip(forest.labels, count.tolist(), strict=True) if times >= least_count]
