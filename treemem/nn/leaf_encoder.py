"""The vectors of labelled leaves."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.errors import GraphError
from treemem.nn.number_encoder import NumberEncoder
from treemem.nn.resettable import Resettable
from treemem.ops.activation import ActivationName, activation
from treemem.ops.propagate import is_exporting
from treemem.schedule.schedule import Schedule
from treemem.trees.vocabulary import NUMBER_KIND, Vocabulary

LeafForm = Literal["embedding", "two-layer"]


class LeafEncoder(Resettable):
    """Compute the vector of each leaf: symbols by an embedding table, numbers by a :class:`NumberEncoder`.

    Args:
        vocabulary: the symbols, and whether there are number leaves.
        size: width of a vector.
        form: ``"embedding"``: a symbol's vector is its row of the table, as in the published code. ``"two-layer"``:
            ``phi(W_2 phi(E[symbol]) + b_2)``, a network of two layers, as in the papers. Its first layer, applied to
            one-hot symbols, is the table.
        number_activation: ``phi``.

    Raises:
        RecipeError: an unknown ``form`` or activation.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        size: int,
        form: LeafForm = "embedding",
        number_activation: ActivationName = "sigmoid",
    ) -> None:
        super().__init__()
        checked_choice("leaf", form, get_args(LeafForm))
        self.form = form
        self._function = activation(number_activation).function
        self.embedding = torch.nn.Embedding(vocabulary.num_leaves, size)
        self.second = torch.nn.Linear(size, size) if form == "two-layer" else None
        self.number = NumberEncoder(size, number_activation) if vocabulary.number is not None else None

    def forward(self, schedule: Schedule) -> torch.Tensor:
        """The vectors of all leaf rows, ``[leaf rows, size]``.

        Raises:
            GraphError: a leaf that is neither a symbol of the vocabulary nor a number.
        """
        num_symbols, num_leaves = _count_symbols(schedule)
        self.check(schedule)
        vectors = self.embedding(schedule.symbol[:num_symbols])
        if self.second is not None:
            vectors = self._function(self.second(self._function(vectors)))
        if self.number is not None and num_leaves > num_symbols:
            numbers = self.number(schedule.value[num_symbols:])
            vectors = torch.cat([vectors, numbers.to(vectors.dtype)])
        return vectors

    def check(self, schedule: Schedule) -> None:
        """Make sure that every leaf has a vector; on other devices than the CPU, where looking means waiting, in part.

        Raises:
            GraphError: a leaf that is neither a symbol of the vocabulary nor a number.
        """
        num_symbols, num_leaves = _count_symbols(schedule)
        if num_leaves > num_symbols and self.number is None:
            node = int(schedule.node_of_row[num_symbols])
            raise GraphError(f"node {node} is a number leaf, and the layer's vocabulary has none")
        symbol = schedule.symbol[:num_symbols]
        if symbol.device.type != "cpu" or is_exporting():  # one would wait for the device, the other has no values
            return
        if num_symbols and int(symbol.min()) < 0:
            node = int(schedule.node_of_row[int(symbol.argmin())])
            raise GraphError(f"node {node} is a leaf without a symbol; give the graph's nodes the field 'label'")


def _count_symbols(schedule: Schedule) -> tuple[int, int]:
    """Leaf rows that are symbols, and all leaf rows; symbols come first."""
    if not schedule.levels:
        return 0, 0
    numbers = [segment for segment in schedule.levels[0].segments if segment.kind == NUMBER_KIND]
    end = len(schedule.symbol)
    return (numbers[0].begin if numbers else end), end
