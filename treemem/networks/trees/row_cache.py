"""A cache of row states across batches, for inference."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.checked_options import checked_count
from treemem.device_copy import to_device
from treemem.engines.cell import State
from treemem.errors import RecipeError
from treemem.networks.trees.tree_network import TreeNetwork
from treemem.schedule.remaining import remaining_rows
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch, choose_examples

Setting = tuple[bool, torch.dtype]


class RowCache:
    """Shares equal subtrees across the batches of a forest; for inference only.

    A batch runs only the rows that no earlier batch has run. The cache keeps inner rows with more than one parent or
    tree in the forest, and drops the oldest ones if it is full. It drops all rows if a weight of the network changes:
    weights are compared by value when a pass begins, and by version between its batches.

    Args:
        network: a network that supports shared subtrees, in evaluation mode.
        index: the subtrees of the forest that holds the examples.
        max_bytes: most bytes of kept states.

    Attributes:
        hits: rows found in the cache, over all batches.
        computed: inner rows that were run.
        seconds: time spent on finding the rows to run.

    Raises:
        RecipeError: a network that does not support shared subtrees, or ``max_bytes`` below 1.

    Example:
        >>> from treemem import Forest, Tree, Vocabulary
        >>> from treemem.nn import TreeLSTM
        >>> vocabulary = Vocabulary(["x"], [("f", 1)])
        >>> trees = [Tree("f", [Tree("f", [Tree("x")])]), Tree("f", [Tree("x")])]
        >>> cache = RowCache(TreeLSTM(4, vocabulary).eval(), SubtreeIndex(Forest.from_trees(trees), vocabulary))
        >>> with torch.no_grad():
        ...     [cache.encode([example]).shape for example in (0, 1)]
        [torch.Size([1, 1, 4]), torch.Size([1, 1, 4])]
        >>> cache.hits, cache.computed
        (1, 2)
    """

    def __init__(self, network: torch.nn.Module, index: SubtreeIndex, *, max_bytes: int = 2**28) -> None:
        _check_shares_subtrees(network)
        checked_count("max_bytes", max_bytes)
        self.network: TreeNetwork = network  # type: ignore[assignment]
        self.index = index
        self.max_bytes = max_bytes
        self.hits = 0
        self.computed = 0
        self.seconds = 0.0
        references = np.bincount(index.child, minlength=index.num_distinct)
        references += np.bincount(index.number[index.forest.begin[1:] - 1], minlength=index.num_distinct)
        self._wanted = (references > 1) & (index.height > 0)
        self._known = np.zeros(index.num_distinct, bool)
        self._place = np.empty(index.num_distinct, np.int64)  # of known rows
        self._weights: list[torch.Tensor] = []
        self._versions: list[tuple[int, int]] = []
        self._setting: Setting | None = None
        self.clear()

    def clear(self) -> None:
        """Drop all rows; the counts stay."""
        self._known[:] = False
        self._states: State = {}
        self._number = np.empty(0, np.int64)  # of the row in each place, -1: none yet
        self._next = 0

    @property
    def num_rows(self) -> int:
        """Number of rows that are kept."""
        return int(self._known.sum())

    @property
    def num_bytes(self) -> int:
        """What the states that are kept take, at most ``max_bytes``."""
        return self.num_rows * _bytes_of_row(self._states)

    def encode(self, examples: ArrayLike | slice | None = None, *, trees_per_example: int = 1) -> torch.Tensor:
        """The encodings of some examples as one batch; see :meth:`encode_batches`."""
        return next(self.encode_batches([examples], trees_per_example=trees_per_example))

    def encode_batches(
        self, batches: Iterable[ArrayLike | slice | None], *, trees_per_example: int = 1
    ) -> Iterator[torch.Tensor]:
        """The encodings of each batch of examples, ``[examples, trees_per_example, hidden_size]``.

        Args:
            batches: for each batch, numbers of examples in the order wanted, a slice, a boolean mask, or None for all.
            trees_per_example: how many trees make an example.

        Raises:
            RecipeError: the network is in training mode or on the engine ``"naive"``, or gradients are enabled.
            GraphError: an example that the forest does not have, or nodes that the network cannot take.
        """
        self._versions = []
        for examples in batches:
            self._check()
            yield self._encode(examples, trees_per_example)

    def _encode(self, examples: ArrayLike | slice | None, trees_per_example: int) -> torch.Tensor:
        begin = time.perf_counter()
        chosen = choose_examples(examples, len(self.index.forest) // trees_per_example)
        trees = (chosen[:, None] * trees_per_example + np.arange(trees_per_example)).ravel()
        rows = remaining_rows(self.index, trees, self._known)
        batch = TreeBatch(rows.schedule, self.index.vocabulary, trees_per_example=trees_per_example)
        self.seconds += time.perf_counter() - begin
        place = torch.from_numpy(self._place[rows.given])
        given = {name: value.index_select(0, to_device(place, value.device)) for name, value in self._states.items()}
        states = self.network.run_from(batch, given if len(place) else {})
        self.hits += len(rows.given)
        self.computed += len(rows.inner)
        self._keep(rows.inner, dict(states.rows))
        return states.root

    def _keep(self, inner: NDArray[np.int64], states: State) -> None:
        """Keep the rows that can be met again of those that were run, the last ones of ``states``."""
        if not self._states:
            capacity = min(self.max_bytes // _bytes_of_row(states), int(self._wanted.sum()))
            with torch.inference_mode(False):  # rows are written later too, in whatever mode
                self._states = {name: value.new_empty(capacity, *value.shape[1:]) for name, value in states.items()}
            self._number = np.full(capacity, -1)
        capacity = len(self._number)
        chosen = np.flatnonzero(self._wanted[inner])[:capacity]
        if not len(chosen):
            return
        number = inner[chosen]
        place = (self._next + np.arange(len(chosen))) % capacity
        self._next = (self._next + len(chosen)) % capacity
        former = self._number[place]
        self._known[former[former >= 0]] = False
        self._number[place], self._place[number], self._known[number] = number, place, True
        to, source = torch.from_numpy(place), torch.from_numpy(chosen)
        for name, value in states.items():
            run = value[len(value) - len(inner) :]
            rows = run.index_select(0, to_device(source, value.device))
            self._states[name].index_copy_(0, to_device(to, value.device), rows)

    def _check(self) -> None:
        """Make sure that rows may be kept, and drop those of other weights.

        Raises:
            RecipeError: they may not.
        """
        network = self.network
        if any(module.training for module in network.modules()):
            raise RecipeError("rows are kept for inference only; call eval() on the network first")
        if torch.is_grad_enabled():
            raise RecipeError("rows that are kept have no gradients; run under torch.no_grad()")
        _check_shares_subtrees(network)
        weights = [*network.parameters(), *network.buffers()]
        device = weights[0].device.type if weights else "cpu"
        setting = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        versions = [(weight.data_ptr(), weight._version) for weight in weights if not weight.is_inference()]
        seen = versions == self._versions and len(versions) == len(weights)
        if setting != self._setting or not (seen or _equal(weights, self._weights)):
            self.clear()
            self._weights = [weight.detach().clone() for weight in weights]
            self._setting = setting
        self._versions = versions

    def __repr__(self) -> str:
        return (
            f"<RowCache of {self.num_rows} rows in {self.num_bytes / 2**20:.1f} MiB: {self.hits} rows found, "
            f"{self.computed} run>"
        )


def _check_shares_subtrees(network: torch.nn.Module) -> None:
    if not getattr(network, "supports_shared_subtrees", False):
        raise RecipeError(
            f"a {type(network).__name__} like this one does not support shared subtrees; rows are kept of a tree "
            "network that goes up only and reads no features, on another engine than 'naive'"
        )


def _equal(weights: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(weights) == len(others) and all(
        weight.dtype == other.dtype and weight.device == other.device and torch.equal(weight, other)
        for weight, other in zip(weights, others, strict=True)
    )


def _bytes_of_row(states: State) -> int:
    return sum(value.element_size() * math.prod(value.shape[1:]) for value in states.values())
