"""What the cells of this library have in common: matrix products, then a pointwise step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch

from treemem.checked_options import checked_count, checked_flag, checked_probability
from treemem.engines.cell import Product, State
from treemem.engines.printer.compiled_formula import plain
from treemem.networks.resettable import Resettable
from treemem.networks.trees.parameter_sets import ParameterSets
from treemem.networks.trees.stacked_linear import Kinds, Maps, linear_by_kind


def node_size(input_size: int | None, node_features: bool) -> int | None:
    """Return the width of the features of inner nodes; None if they read none."""
    return input_size if checked_flag("node_features", node_features) else None


@dataclass(frozen=True)
class CellOptions:
    """The options that all cells of this library share.

    Attributes:
        hidden_size: width of ``h``.
        input_size: width of the features that leaves read.
        node_features: whether inner nodes read features, too.
        dropout: probability of dropout in training.
        embedding_size: width of the vectors of labels that leaves read. None: without features, leaves are given as
            ``h``.
    """

    hidden_size: int
    input_size: int | None = None
    node_features: bool = False
    dropout: float = 0.0
    embedding_size: int | None = None


_NOT_IN_STEPS = {"sets", "training", "dropout"}


class SplitTreeCell(Resettable):
    """A cell in the split form (:class:`treemem.engines.cell.SplitCell`); :meth:`forward` composes its parts.

    Subclasses define ``products``, ``weights``, ``step`` and ``leaf``. A cell with forward hooks is called once a
    segment.

    Args:
        sets: which kinds share parameters.
        options: see :class:`CellOptions`.

    Raises:
        RecipeError: a size or a dropout out of range.

    Attributes:
        input_size: width of the features or vectors from which leaves compute their states; None if they are given as
            ``h``.
        reads_labels: whether inner nodes read the vectors of their labels: they read no features, and nodes of several
            labels share parameters.
        node_input_size: width of the features or vectors that inner nodes read; None if they read none.
        ordered: whether the order of children matters.
    """

    ordered: bool = True

    def __init__(self, sets: ParameterSets, options: CellOptions) -> None:
        super().__init__()
        self.sets = sets
        self.hidden_size = checked_count("hidden_size", options.hidden_size)
        self.dropout = checked_probability("dropout", options.dropout)
        embedding_size = options.embedding_size
        if embedding_size is not None:
            checked_count("embedding_size", embedding_size)
        self.input_size = embedding_size if options.input_size is None else options.input_size
        if options.input_size is not None:
            checked_count("input_size", options.input_size, least=0)
        self.node_input_size = node_size(options.input_size, options.node_features)
        self.reads_labels = self.node_input_size is None and sets.share_labels
        if self.reads_labels:
            self.node_input_size = self.hidden_size if embedding_size is None else embedding_size

    @property
    def dropout_now(self) -> float:
        """Probability of dropout: 0 outside training."""
        return self.dropout if self.training else 0.0

    def products(self, arity: int) -> tuple[Product, ...]:
        """The matrix products of nodes with so many children."""
        raise NotImplementedError

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Stacked weights ``[sets, outputs, inputs]`` and biases ``[sets, outputs]`` by key, and what steps learn."""
        raise NotImplementedError

    def step(self, products: State, children: State) -> State:
        """The pointwise rest, in plain torch.

        Args:
            products: results of the products by name, ``[m * copies, outputs]``.
            children: the children's states, ``[m, arity, ...]``.
        """
        raise NotImplementedError

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The states of leaves; see :class:`treemem.engines.cell.Cell`."""
        raise NotImplementedError

    def leaf_products(self) -> tuple[Product, ...]:
        """The products of leaves, which read features alone, if leaves may run ``step``."""
        return ()

    def formula_key(self) -> Hashable:
        """What :meth:`step` depends on beside the arity: the class, and the attributes of the cell itself."""
        options = {key: value for key, value in vars(self).items() if key[0] != "_" and key not in _NOT_IN_STEPS}
        return type(self), self.dropout_now, plain(options)

    def weights_of_sets(self) -> Maps:
        """The weights of each set, which the products of many levels may share."""
        return {
            key: list(zip(weight.unbind(0), bias.unbind(0), strict=True))
            for key, (weight, bias) in self.weights().items()
            if weight.dim() == 3  # others belong to the step
        }

    def run_products(self, children: State, x: torch.Tensor | None, kinds: Kinds, maps: Maps) -> State:
        """Return the result of each product, ``[m * copies, outputs]``, before any activation."""
        results: State = {}
        for product in self.products(children["h"].shape[1]):
            inputs = product.inputs(children, x, results)
            results[product.name] = linear_by_kind(inputs, maps[product.weights], product.set_of_kind, kinds)
        return results

    def forward_kinds(self, children: State, x: torch.Tensor | None, kinds: Kinds, maps: Maps) -> State:
        """The states of inner nodes of one arity, sorted by kind.

        Args:
            children: the children's states, ``[m, arity, ...]``.
            x: what the nodes read of their own, ``[m, input_size]``, or None.
            kinds: the number of nodes of each kind, and the kind.
            maps: see :meth:`weights_of_sets`.
        """
        return self.step(self.run_products(children, x, kinds, maps), children)

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The states of inner nodes; see :class:`treemem.engines.cell.Cell`."""
        return self.forward_kinds(children, x, [(len(children["h"]), kind)], self.weights_of_sets())

    def products_of(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """Return the products of ``m`` nodes of one kind, for the trace."""
        return self.run_products(children, x, [(len(children["h"]), kind)], self.weights_of_sets())
