"""The sentences of the task as examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import check_fields
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.postorder import concatenated_ranges, offsets

NEUTRAL = 2


@dataclass(frozen=True)
class SentimentDataOptions:
    """Which examples to train on.

    Attributes:
        phrases: train on every phrase of the training sentences, not only on whole sentences. This is how sequence
            networks learn from the classes of phrases. Validation and test have whole sentences only.

    Raises:
        RecipeError: ``phrases`` is not true or false.
    """

    phrases: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "data.")


def root_classes(forest: Forest, num_classes: int) -> NDArray[np.int64]:
    """Return the class of each sentence, int64 ``[trees]``; -1 if it has none."""
    if "class" not in forest.node_data:
        return np.full(len(forest), -1, np.int64)
    return node_classes(forest, num_classes)[forest.begin[1:] - 1]


def node_classes(forest: Forest, num_classes: int) -> NDArray[np.int64]:
    """Return the class of each node, int64 ``[nodes]``: 0 to 4; or of two classes 0, 1, and -1 for neutral."""
    classes = forest.node_data["class"].astype(np.int64)
    if num_classes == 2:
        return np.where(classes > NEUTRAL, 1, np.where((classes >= 0) & (classes < NEUTRAL), 0, -1))
    return classes


def with_phrases(forest: Forest) -> Forest:
    """Return the trees with every phrase of the training sentences as a tree of its own; other trees stay."""
    is_last = np.zeros(forest.num_nodes, bool)
    is_last[forest.begin[1:] - 1] = True
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.begin))
    split = forest.tree_data["split"]
    root = np.flatnonzero(is_last | (split == SPLITS[0])[tree])
    size = forest.subtree_size()[root].astype(np.int64)
    node = concatenated_ranges(root - size + 1, size)
    return Forest(
        forest.labels,
        forest.label[node],
        forest.arity[node],
        offsets(size),
        node_data={name: array[node] for name, array in forest.node_data.items()},
        tree_data={name: array[tree[root]] for name, array in forest.tree_data.items()},
        vectors=forest.vectors,
    )


def sentiment_data(forest: Forest, num_classes: int, options: SentimentDataOptions) -> TaskData:
    """Return the examples that ``options`` ask for; with two classes, those that are not neutral."""
    if options.phrases:
        forest = with_phrases(forest)
    forest = forest[np.flatnonzero(root_classes(forest, num_classes) >= 0)]
    split, label = forest.tree_data["split"], root_classes(forest, num_classes)
    rows = [[name, *np.bincount(label[split == name], minlength=num_classes)] for name in SPLITS]
    what = "sentences and phrases" if options.phrases else "sentences"
    about = f"# Sentiment\n\nThe {what} of the Stanford Sentiment Treebank in {num_classes} classes."
    head = ["split", *(f"class {number}" for number in range(num_classes))]
    return TaskData(forest, data_card(about, head, rows))
