"""The vectors of labels and numbers."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from treemem.checked_options import checked_choice, checked_count
from treemem.engines.activation import ActivationName, activation, checked_activation
from treemem.engines.cell import LabelVectors
from treemem.errors import GraphError
from treemem.networks.resettable import Resettable
from treemem.schedule.schedule import Schedule
from treemem.trees.vocabulary import NUMBER_KIND, Vocabulary

LeafForm = Literal["embedding", "two-layer"]


class NumberEncoder(Resettable):
    """The encoding of a number: ``h = phi(W_2 phi(W_1 v + b_1) + b_2)``.

    Args:
        hidden_size: width of the encoding.
        activation: ``phi``; the published Tree-RNN with a stack has ``"relu"``, all other networks the sigmoid.

    Example:
        >>> NumberEncoder(4)(torch.tensor([2.5, -1.0])).shape
        torch.Size([2, 4])
    """

    def __init__(self, hidden_size: int, activation: ActivationName = "sigmoid") -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        self.activation = checked_activation(activation)
        self.first = torch.nn.Linear(1, hidden_size)
        self.second = torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Encode numbers, ``[m]``, as ``[m, hidden_size]``."""
        function = activation(self.activation)
        return function(self.second(function(self.first(value.to(self.first.weight.dtype)[:, None]))))


class LeafEncoder(Resettable):
    """Compute the vector of each leaf: symbols by an embedding table, numbers by a :class:`NumberEncoder`.

    With ``functions``, :meth:`of_functions` computes the vectors of inner nodes, from the same table. A label has one
    vector, at leaves and at inner nodes.

    Args:
        vocabulary: the symbols, and whether there are number leaves.
        size: width of a vector.
        form: ``"embedding"``: a symbol's vector is its row of the table, as in the published code. ``"two-layer"``:
            ``phi(W_2 phi(E[symbol]) + b_2)``, a network of two layers, as in the papers. Its first layer, applied to
            one-hot symbols, is the table.
        number_activation: ``phi``.
        functions: whether the table has the labels of inner nodes too.

    Raises:
        RecipeError: an unknown ``form`` or activation.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        size: int,
        form: LeafForm = "embedding",
        number_activation: ActivationName = "sigmoid",
        functions: bool = False,
    ) -> None:
        super().__init__()
        checked_choice("leaf", form, get_args(LeafForm))
        self.form = form
        self._function = activation(number_activation)
        self.reads_functions = functions
        self.embedding = torch.nn.Embedding(len(vocabulary.labels) if functions else vocabulary.num_leaves, size)
        self.second = torch.nn.Linear(size, size) if form == "two-layer" else None
        self.number = NumberEncoder(size, number_activation) if vocabulary.number is not None else None

    def forward(self, schedule: Schedule) -> torch.Tensor:
        """The vectors of all leaf rows, ``[leaf rows, size]``.

        Raises:
            GraphError: a leaf that is neither a symbol of the vocabulary nor a number.
        """
        num_symbols, num_leaves = _count_symbols(schedule)
        self.check(schedule)
        vectors = self._vectors(schedule.symbol[:num_symbols])
        if self.number is not None and num_leaves > num_symbols:
            numbers = self.number(schedule.value[num_symbols:])
            vectors = torch.cat([vectors, numbers.to(vectors.dtype)])
        return vectors

    def of_functions(self, schedule: Schedule) -> torch.Tensor:
        """The vectors of all inner rows, ``[inner rows, size]``.

        Raises:
            GraphError: an inner node without a label.
        """
        return self._vectors(self.labels_of_functions(schedule).label)

    def labels_of_functions(self, schedule: Schedule) -> LabelVectors:
        """The labels of all inner rows, and what computes their vectors.

        Raises:
            GraphError: an inner node without a label.
        """
        self.check_functions(schedule)
        return LabelVectors(
            schedule.function, self.embedding.num_embeddings, self.embedding.embedding_dim, self._vectors
        )

    def _vectors(self, symbol: torch.Tensor) -> torch.Tensor:
        vectors = self.embedding(symbol)
        if self.second is not None:
            vectors = self._function(self.second(self._function(vectors)))
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
        row = _first_negative(schedule.symbol[:num_symbols])
        if row is not None:
            node = int(schedule.node_of_row[row])
            raise GraphError(f"node {node} is a leaf without a symbol; give the graph's nodes the field 'label'")

    def check_functions(self, schedule: Schedule) -> None:
        """Make sure that every inner row has a label; not on other devices than the CPU, where looking means waiting.

        Raises:
            GraphError: an inner node without a label.
        """
        row = _first_negative(schedule.function)
        if row is not None:
            node = int(schedule.node_of_row[schedule.num_leaf_rows + row])
            raise GraphError(
                f"node {node} has children and no label, and the layer reads the labels of such nodes; give the "
                "graph's nodes the field 'label'"
            )


def _first_negative(symbol: torch.Tensor) -> int | None:
    # Looking would wait for another device, and an export has no values.
    if symbol.device.type != "cpu" or torch.compiler.is_exporting():
        return None
    return int(symbol.argmin()) if len(symbol) and int(symbol.min()) < 0 else None


def _count_symbols(schedule: Schedule) -> tuple[int, int]:
    """Leaf rows that are symbols, and all leaf rows; symbols come first."""
    if not schedule.levels:
        return 0, 0
    numbers = [segment for segment in schedule.levels[0].segments if segment.kind == NUMBER_KIND]
    end = len(schedule.symbol)
    return (numbers[0].begin if numbers else end), end
