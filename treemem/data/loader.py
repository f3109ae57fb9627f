"""What a loader of batches offers, and how batches of sequences are made."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.token_batch import TokenBatch
from treemem.data_parallel import Processes
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tokens import TokenSequences

Batch = TreeBatch | TokenBatch
_WINDOW = 16  # batches whose examples are sorted together


@dataclass(frozen=True)
class BatchOptions:
    """How examples are put into batches; see :class:`treemem.schedule.TreeLoader` for each field."""

    batch_size: int = 1024
    nodes_per_batch: int | None = None
    shuffle: bool = False
    sort_by_height: bool = False
    sort_by_length: bool = False
    seed: int = 0
    epoch: int = 0
    share_subtrees: bool = True
    prefetch: int = 0


class Loader(Protocol):
    """Batches of a data set, one after the other.

    Attributes:
        seconds: what the caller has waited for batches so far.
    """

    seconds: float

    @property
    def examples(self) -> NDArray[np.int64]:
        """The number of each item in the data set, ``[items]``. An item is an example, or a piece of a stream."""

    @property
    def group(self) -> NDArray[np.int64]:
        """The group of each item, ``[items]``."""

    def plan(self) -> Sequence[NDArray[np.int64]]:
        """Return the places of the items of each batch."""

    def batches(self, plan: Sequence[NDArray[np.int64]] | None = None) -> Generator[Batch, None, None]:
        """Yield the batches of ``plan``, which may be a part of :meth:`plan`; by default of all of it."""

    def parts(self, plan: Sequence[NDArray[np.int64]], processes: Processes) -> Sequence[NDArray[np.int64]]:
        """Return what this process does of each batch."""

    def __len__(self) -> int:
        """Return the number of batches."""


class SequenceLoader:
    """Batches of token sequences, or of pairs of them.

    Args:
        sequences: the tokens; those of a pair are adjacent.
        per_example: 1, or 2 for pairs: the second sequence becomes the batch's target.
        chosen: numbers of the examples to go through.
        group: of these examples.
        options: how to make batches.
    """

    def __init__(
        self,
        sequences: TokenSequences,
        per_example: int,
        chosen: NDArray[np.int64],
        group: NDArray[np.int64],
        options: BatchOptions,
    ) -> None:
        self.sequences, self.per_example, self.examples, self.group = sequences, per_example, chosen, group
        self.options = options
        self.seconds = 0.0

    def plan(self) -> list[NDArray[np.int64]]:
        """Return the places of the examples of each batch."""
        options, count = self.options, len(self.examples)
        draw = np.random.default_rng([options.seed, options.epoch])
        order = draw.permutation(count) if options.shuffle else np.arange(count)
        if not options.sort_by_length:
            return _cut(order, options.batch_size)
        size = self.sizes()
        windows = _cut(order, _WINDOW * options.batch_size) if options.shuffle else [order]
        batches = [
            batch
            for window in windows
            for batch in _cut(window[np.argsort(size[window], kind="stable")], options.batch_size)
        ]
        return [batches[place] for place in draw.permutation(len(batches))] if options.shuffle else batches

    def sizes(self) -> NDArray[np.int64]:
        """Return the tokens of each example, both sequences of a pair counted."""
        return np.diff(self.sequences.begin[:: self.per_example])[self.examples]

    def parts(self, plan: Sequence[NDArray[np.int64]], processes: Processes) -> list[NDArray[np.int64]]:
        """Return what this process does of each batch: parts of about as many tokens."""
        sizes = self.sizes()
        return [places[processes.balanced_part(sizes[places])] for places in plan]

    def __len__(self) -> int:
        return -(-len(self.examples) // self.options.batch_size)

    def batches(self, plan: Sequence[NDArray[np.int64]] | None = None) -> Generator[TokenBatch, None, None]:
        """Yield the batches of ``plan``."""
        for places in self.plan() if plan is None else plan:
            begin = time.perf_counter()
            chosen = self.examples[places]
            batch = self._padded(chosen * self.per_example, chosen)
            if self.per_example == 2:
                batch = replace(batch, target=self._padded(chosen * 2 + 1, chosen))
            self.seconds += time.perf_counter() - begin
            yield batch

    def _padded(self, numbers: NDArray[np.int64], example_ids: NDArray[np.int64]) -> TokenBatch:
        begin, end = self.sequences.begin[numbers], self.sequences.begin[numbers + 1]
        length = end - begin
        place = np.arange(int(length.max(initial=0)))
        inside = place < length[:, None]
        source = np.where(inside, begin[:, None] + place, 0)
        token = np.where(inside, self.sequences.token[source] if len(self.sequences.token) else 0, 0)
        return TokenBatch(torch.from_numpy(token), torch.from_numpy(length), example_ids)


class WindowPlan(Sequence[NDArray[np.int64]]):
    """The pieces of each batch of a stream, made when they are asked for, for a long stream has many batches.

    Args:
        windows: numbers of the batches.
        chosen: numbers of the columns in a batch.
        columns: how many columns the stream has.
    """

    def __init__(self, windows: range, chosen: NDArray[np.int64], columns: int) -> None:
        self.windows, self.chosen, self.columns = windows, chosen, columns

    def __len__(self) -> int:
        return len(self.windows)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.int64]: ...

    @overload
    def __getitem__(self, index: slice) -> WindowPlan: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.int64] | WindowPlan:
        if isinstance(index, slice):
            return WindowPlan(self.windows[index], self.chosen, self.columns)
        return self.windows[index] * self.columns + self.chosen


class StreamLoader:
    """Batches of one long stream of tokens, cut into columns that run side by side.

    A batch holds ``steps`` tokens of each column, and its target the tokens that come next. It continues where the
    batch before it ended, so that a network can carry its state on (truncated backpropagation through time).

    Args:
        stream: integers ``[tokens]``, which may be mapped from a file.
        columns: how many columns; fewer if the stream is shorter.
        steps: tokens of a column in a batch; the last batch may have fewer.
        varied: draws the number of tokens of each batch, as AWD-LSTM does (Merity et al. 2018): the normal distribution
            of deviation 5 around ``steps``, or in one of 20 batches around its half; at least 5.
        ids: the token id of each number of the stream, int64; None: the numbers are the ids.
    """

    def __init__(
        self,
        stream: NDArray[np.integer],
        columns: int,
        steps: int,
        varied: np.random.Generator | None = None,
        ids: NDArray[np.int64] | None = None,
    ) -> None:
        self.columns = max(1, min(columns, len(stream) - 1))
        length = max(0, len(stream) - 1) // self.columns
        self._inputs = stream[: self.columns * length].reshape(self.columns, length)
        self._targets = stream[1 : self.columns * length + 1].reshape(self.columns, length)
        self._ids = ids
        self._begin = np.fromiter(chain([0], _window_ends(length, steps, varied)), np.int64)
        self.windows = len(self._begin) - 1
        self.seconds = 0.0

    @property
    def examples(self) -> NDArray[np.int64]:
        """The number of each piece of a column."""
        return np.arange(self.windows * self.columns)

    @property
    def group(self) -> NDArray[np.int64]:
        """The group of each piece of a column: all are of one, 0."""
        return np.broadcast_to(np.int64(0), self.windows * self.columns)

    def plan(self) -> WindowPlan:
        """Return the pieces of each batch; piece ``window * columns + column`` is of that column."""
        return WindowPlan(range(self.windows), np.arange(self.columns), self.columns)

    def parts(self, plan: Sequence[NDArray[np.int64]], processes: Processes) -> Sequence[NDArray[np.int64]]:
        """Return the same columns of each batch."""
        if isinstance(plan, WindowPlan):
            return WindowPlan(plan.windows, processes.part(plan.chosen), self.columns)
        return [processes.part(places) for places in plan]

    def __len__(self) -> int:
        return self.windows

    def batches(self, plan: Sequence[NDArray[np.int64]] | None = None) -> Generator[TokenBatch, None, None]:
        """Yield the batches of ``plan``; each must hold the same columns."""
        for places in self.plan() if plan is None else plan:
            window, column = int(places[0]) // self.columns if len(places) else 0, places % self.columns
            piece = slice(*self._begin[window : window + 2])
            yield replace(
                self._batch(self._inputs[column, piece], places),
                target=self._batch(self._targets[column, piece], places),
                continues=window > 0,
            )

    def _batch(self, token: NDArray[np.integer], example_ids: NDArray[np.int64]) -> TokenBatch:
        id = np.ascontiguousarray(token) if self._ids is None else self._ids[token]
        lengths = torch.full((len(token),), token.shape[1], dtype=torch.int64)
        return TokenBatch(torch.from_numpy(id), lengths, example_ids)


def _window_ends(length: int, steps: int, varied: np.random.Generator | None) -> Iterator[int]:
    """Yield where each batch of a stream ends."""
    end = 0
    while end < length:
        size = steps
        if varied is not None:
            size = max(5, int(varied.normal(steps if varied.random() < 0.95 else steps / 2, 5)))
        end = min(length, end + size)
        yield end


def _cut(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [order[first : first + size] for first in range(0, len(order), size)]
