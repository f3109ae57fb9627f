"""A network, labelled examples and how they are batched: what every way of running it has in common."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.device import measured_device
from benchmarks.examples import Examples
from treemem.device_copy import to_device
from treemem.networks.trees.split_tree_cell import SplitTreeCell
from treemem.nn import ClassifierHead, EqualityHead, RelationHead, TreeNetwork
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch

Head = EqualityHead | RelationHead | ClassifierHead


class Step(NamedTuple):
    """One batch with what belongs to it.

    Attributes:
        batch: the trees.
        feat: the features of all nodes, ``[nodes, input_size]``, or None.
        label: ``[examples]`` or, where every node has one, ``[nodes]``.
    """

    batch: TreeBatch
    feat: Tensor | None
    label: Tensor


@dataclass(eq=False)
class Problem:
    """Batches of labelled examples for one network; all of one size, so that their rates can be compared.

    Attributes:
        layer, head: the network.
        examples: what it reads.
        batch_size: examples in a batch.
        share_subtrees: whether equal subtrees of a batch are computed once.
        device: where the network is.
    """

    layer: TreeNetwork
    head: Head
    examples: Examples
    batch_size: int
    share_subtrees: bool
    device: torch.device = field(default_factory=measured_device)
    index: SubtreeIndex = field(init=False, repr=False)
    _feats: list[Tensor | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.batch_size = min(self.batch_size, len(self.examples))
        self.layer, self.head = self.layer.to(self.device), self.head.to(self.device)
        self.index = SubtreeIndex(self.examples.forest, self.examples.vocabulary)
        self._feats = self._features()

    @property
    def cell(self) -> SplitTreeCell:
        """The layer's cell."""
        assert isinstance(self.layer.cell, SplitTreeCell)
        return self.layer.cell

    def __len__(self) -> int:
        return len(self.examples) // self.batch_size

    def __iter__(self) -> Iterator[Step]:
        return (self.step(number) for number in range(len(self)))

    def step(self, number: int) -> Step:
        """The batch of a number, made anew on the CPU as in training; features were looked up before."""
        chosen = slice(number * self.batch_size, (number + 1) * self.batch_size)
        batch = TreeBatch.from_index(
            self.index,
            chosen,
            trees_per_example=self.examples.trees_per_example,
            share_subtrees=self.share_subtrees,
        )
        label = self.examples.label[self._nodes(number) if self.examples.every_node else chosen]
        return Step(batch, self._feats[number], to_device(label, self.device))

    def loss(self, encodings: Tensor, label: Tensor) -> Tensor:
        """The mean loss of a batch.

        Args:
            encodings: ``[examples, trees_per_example, hidden_size]`` or, where every node has a label,
                ``h`` of all nodes.
            label: of the batch.
        """
        return self.head.loss(self.head(encodings), label)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Every parameter of layer and head, by name."""
        return dict([*self.layer.named_parameters("layer"), *self.head.named_parameters("head")])

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters().values():
            parameter.grad = None

    def with_sharing(self, share_subtrees: bool) -> Problem:
        """The same network and examples in batches that share equal subtrees, or do not."""
        return replace(self, share_subtrees=share_subtrees)

    def first_batch(self) -> Problem:
        """The same network on the first batch alone."""
        return replace(self, examples=self.examples.first(self.batch_size))

    def in_float64(self, examples: Examples) -> Problem:
        """The same network in float64 on other examples, in one batch."""
        layer, head = copy.deepcopy(self.layer).double(), copy.deepcopy(self.head).double()
        return replace(self, layer=layer, head=head, examples=examples, batch_size=len(examples))

    def _nodes(self, number: int) -> slice:
        trees = self.batch_size * self.examples.trees_per_example
        begin = self.examples.forest.begin
        return slice(int(begin[number * trees]), int(begin[(number + 1) * trees]))

    def _features(self) -> list[Tensor | None]:
        """Random vectors of words, at the leaves; inner nodes, which the network does not look at, have zeros."""
        size = self.layer.input_size
        if size is None:
            return [None] * len(self)
        dtype = next(self.layer.parameters()).dtype
        table = torch.randn(len(self.examples.vocabulary.leaves), size, generator=torch.Generator().manual_seed(0))
        table = torch.cat([table, torch.zeros(1, size)]).to(dtype)
        symbol = torch.from_numpy(self.examples.vocabulary.encode(self.examples.forest).symbol.astype(np.int64))
        return [table[symbol[self._nodes(number)]].to(self.device) for number in range(len(self))]
