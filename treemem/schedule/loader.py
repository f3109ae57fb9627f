"""Batches of an indexed forest, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from treemem.errors import GraphError
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch, choose_examples


class TreeLoader:
    """Goes through examples batch by batch; each pass over it is one epoch.

    The order depends on ``seed`` and the epoch alone, so a run that resumes meets the same batches.

    Args:
        index: the subtrees of the forest that holds the examples.
        examples: numbers of the examples to go through, a slice or a boolean mask; all by default.
        batch_size: examples in a batch; the last batch may have fewer.
        trees_per_example: how many trees make an example.
        shuffle: whether each epoch has an order of its own.
        seed: of the shuffling.
        share_subtrees: whether equal subtrees of a batch are computed once.

    Raises:
        GraphError: a batch size below 1, or examples that the forest does not have.

    Example:
        >>> from treemem.trees.forest import Forest
        >>> from treemem.trees.tree import Tree
        >>> from treemem.trees.vocabulary import Vocabulary
        >>> forest = Forest.from_trees([Tree("x"), Tree("y"), Tree("x")])
        >>> loader = TreeLoader(SubtreeIndex(forest, Vocabulary(["x", "y"], [])), batch_size=2)
        >>> [batch.example_ids.tolist() for batch in loader]
        [[0, 1], [2]]
    """

    def __init__(
        self,
        index: SubtreeIndex,
        examples: ArrayLike | slice | None = None,
        batch_size: int = 256,
        *,
        trees_per_example: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        share_subtrees: bool = True,
    ) -> None:
        if batch_size < 1:
            raise GraphError(f"batch_size must be at least 1, not {batch_size}")
        if trees_per_example < 1 or len(index.forest) % trees_per_example:
            raise GraphError(f"{len(index.forest)} trees cannot be split into examples of {trees_per_example} each")
        self.index = index
        self.examples = choose_examples(examples, len(index.forest) // trees_per_example)
        self.batch_size = batch_size
        self.trees_per_example = trees_per_example
        self.shuffle = shuffle
        self.seed = seed
        self.share_subtrees = share_subtrees
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass; it does not advance by itself."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch_size)

    def __iter__(self) -> Iterator[TreeBatch]:
        examples = self.examples
        if self.shuffle:
            examples = np.random.default_rng([self.seed, self.epoch]).permutation(examples)
        for first in range(0, len(examples), self.batch_size):
            yield TreeBatch.from_index(
                self.index,
                examples[first : first + self.batch_size],
                trees_per_example=self.trees_per_example,
                share_subtrees=self.share_subtrees,
            )
