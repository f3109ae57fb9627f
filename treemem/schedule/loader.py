"""Batches of an indexed forest, one after the other, made ahead of their use where asked for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch, choose_examples, num_examples_of

_WINDOW = 16  # batches whose examples are sorted together
Given = TypeVar("Given")
Made = TypeVar("Made")


class TreeLoader:
    """Makes batches of trees; each iteration over the loader is one epoch.

    The order depends only on ``seed``, the epoch and the options of the batches. So a resumed run has the same batches.

    Args:
        index: the subtrees of the forest that holds the examples.
        examples: positions of the examples in the forest, a slice or a boolean mask; all by default.
        batch_size: number of examples in a batch; the last batch may have fewer.
        nodes_per_batch: the largest number of nodes in a batch, instead of ``batch_size``. Equal subtrees count each
            time. An example with more nodes is a batch by itself.
        trees_per_example: number of trees in an example.
        shuffle: use another order in each epoch.
        sort_by_height: make batches of examples of similar height, so that fewer levels run. Without ``shuffle`` all
            examples are sorted. With it, the shuffled examples are sorted within windows of 16 batches, and then the
            batches are shuffled.
        sort_by_length: the same by the number of nodes of an example's largest tree, for networks that read tokens: it
            reduces padding.
        seed: seed of the shuffling.
        share_subtrees: compute equal subtrees of a batch once.
        prefetch: number of batches that a thread makes in advance; 0: no thread. The batches are the same. Making a
            batch takes a few hundredths of a training step, and the thread competes with the network's own Python. So
            on a CPU it costs more than it saves.

    Attributes:
        seconds: total time spent waiting for batches, over all epochs.

    Raises:
        GraphError: a size is below 1, or the forest does not have such examples.

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
        nodes_per_batch: int | None = None,
        trees_per_example: int = 1,
        shuffle: bool = False,
        sort_by_height: bool = False,
        sort_by_length: bool = False,
        seed: int = 0,
        share_subtrees: bool = True,
        prefetch: int = 0,
    ) -> None:
        for name, size in (("batch_size", batch_size), ("nodes_per_batch", nodes_per_batch)):
            if size is not None and size < 1:
                raise GraphError(f"{name} must be at least 1, not {size}")
        if sort_by_height and sort_by_length:
            raise GraphError("sort_by_height and sort_by_length contradict each other; choose one")
        if not isinstance(seed, (int, np.integer)) or seed < 0:
            raise GraphError(f"seed must be a whole number from 0, not {seed!r}")
        if prefetch < 0:
            raise GraphError(f"prefetch must be 0 or more, not {prefetch}")
        self.index = index
        self.examples = choose_examples(examples, num_examples_of(len(index.forest), trees_per_example))
        self.batch_size = batch_size
        self.nodes_per_batch = nodes_per_batch
        self.trees_per_example = trees_per_example
        self.shuffle = shuffle
        self.sort_by_height = sort_by_height
        self.sort_by_length = sort_by_length
        self.seed = seed
        self.share_subtrees = share_subtrees
        self.prefetch = prefetch
        self.epoch = 0
        self.seconds = 0.0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass; it does not advance by itself."""
        self.epoch = epoch

    def plan(self) -> list[NDArray[np.int64]]:
        """What each batch of the epoch holds: places in ``examples``."""
        order = np.arange(len(self.examples))
        draw = np.random.default_rng([self.seed, self.epoch])
        if self.shuffle:
            order = draw.permutation(order)
        if not (self.sort_by_height or self.sort_by_length):
            return self._cut(order)
        size = self._height() if self.sort_by_height else self._length()
        windows = self._cut(order, _WINDOW) if self.shuffle else [order]
        batches = [batch for window in windows for batch in self._cut(window[np.argsort(size[window], kind="stable")])]
        return [batches[place] for place in draw.permutation(len(batches))] if self.shuffle else batches

    def __len__(self) -> int:
        return len(self.plan()) if self.nodes_per_batch is not None else -(-len(self.examples) // self.batch_size)

    def __iter__(self) -> Iterator[TreeBatch]:
        return self.batches()

    def batches(self, plan: Sequence[NDArray[np.int64]] | None = None) -> Generator[TreeBatch, None, None]:
        """The batches of ``plan``: what is left of :meth:`plan`, say; by default all of it.

        Where batches are made ahead, closing the iterator ends the thread; leaving a ``for`` loop does so too.
        """
        made = make_ahead(self._make, self.plan() if plan is None else plan, self.prefetch)
        with closing(made):
            while True:
                begin = time.perf_counter()
                batch = next(made, None)
                self.seconds += time.perf_counter() - begin
                if batch is None:
                    return
                yield batch

    def _make(self, places: NDArray[np.int64]) -> TreeBatch:
        return TreeBatch.from_index(
            self.index,
            self.examples[places],
            trees_per_example=self.trees_per_example,
            share_subtrees=self.share_subtrees,
        )

    def _cut(self, order: NDArray[np.int64], factor: int = 1) -> list[NDArray[np.int64]]:
        """``order`` in parts of so many batches' size each."""
        if self.nodes_per_batch is None:
            size = factor * self.batch_size
            return [order[first : first + size] for first in range(0, len(order), size)]
        end = np.cumsum(self.num_nodes()[order])
        parts, first, before = [], 0, 0
        while first < len(order):
            last = int(np.searchsorted(end, before + factor * self.nodes_per_batch, side="right"))
            last = max(last, first + 1)
            parts.append(order[first:last])
            first, before = last, int(end[last - 1])
        return parts

    def num_nodes(self) -> NDArray[np.int64]:
        """Nodes of each of ``examples``, equal subtrees counted each time."""
        begin = self.index.forest.begin[:: self.trees_per_example]
        return np.diff(begin)[self.examples]

    def _height(self) -> NDArray[np.int64]:
        """Height of the highest tree of each of ``examples``."""
        root = self.index.forest.begin[1:] - 1
        return self._largest(self.index.height[self.index.number[root]])

    def _length(self) -> NDArray[np.int64]:
        """Nodes of the largest tree of each of ``examples``."""
        return self._largest(np.diff(self.index.forest.begin))

    def _largest(self, of_tree: NDArray[np.int64]) -> NDArray[np.int64]:
        return of_tree.reshape(-1, self.trees_per_example).max(1)[self.examples]


def make_ahead(make: Callable[[Given], Made], parts: Sequence[Given], ahead: int) -> Generator[Made, None, None]:
    """``make(part)`` for each of ``parts`` in order, up to ``ahead`` of them made before they are asked for.

    They are made one after the other in one thread, which ends with the iterator; an error is raised where the result
    was to be had.
    """
    if ahead < 1:
        yield from map(make, parts)
        return
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, "treemem-loader") as thread:
        try:
            for part in parts:
                waiting.append(thread.submit(make, part))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
