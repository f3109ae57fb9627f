"""What the cells have in common whose nodes take one matrix product, of the children in order."""

from __future__ import annotations

import torch

from treemem.nn.parameter_sets import SetsByArity
from treemem.nn.split_tree_cell import SplitTreeCell
from treemem.nn.stacked_linear import LinearByArity, StackedLinear
from treemem.ops.cell import Product
from treemem.ops.product_input import ChildrenInOrder


class OneProductCell(SplitTreeCell):
    """A cell with one product, ``gates``, of the children's ``h`` one after the other, then the features.

    Leaves that have features take the same step without children; others are vectors, which are ``h`` already.

    Args:
        hidden_size: width of ``h``.
        sets: which kinds share parameters.
        input_size: width of the features that leaves read; None where leaves are given as ``h``.
        node_input_size: width of the features that inner nodes read; None where they read none.
        dropout: probability of dropout, in training.

    Attributes:
        maps: by arity, the map of its nodes.
        leaf_map: that of the leaves' features; None where leaves have none.
    """

    sets: SetsByArity

    def __init__(
        self,
        hidden_size: int,
        sets: SetsByArity,
        input_size: int | None = None,
        node_input_size: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(hidden_size, sets, input_size, node_input_size, dropout)
        self.maps = LinearByArity({str(arity): self.new_map(arity) for arity in sets.arities})
        self.leaf_map = None if input_size is None else StackedLinear(1, (input_size,), self.outputs(0))

    def outputs(self, arity: int) -> int:
        """Width of the product of nodes with so many children."""
        raise NotImplementedError

    def new_map(self, arity: int) -> StackedLinear:
        """The map of nodes with so many children."""
        inputs = arity * self.hidden_size + (self.node_input_size or 0)
        return StackedLinear(self.sets.count(arity), (inputs,), self.outputs(arity))

    def products(self, arity: int) -> tuple[Product, ...]:
        """One product, ``gates``."""
        return (Product("gates", LinearByArity.key("gates", arity), ChildrenInOrder(), self.sets.set_of_kind(arity)),)

    def product_of_leaf_map(self) -> tuple[Product, ...]:
        """One product, ``gates``, of features, unless something else was put in the place of ``leaf_map``.

        For the ``leaf_products`` of cells whose leaves take the step of nodes without children.
        """
        leaf_map = self.leaf_map
        if type(leaf_map) is not StackedLinear or leaf_map._forward_hooks or leaf_map._forward_pre_hooks:
            return ()
        return (Product("gates", "leaf", ChildrenInOrder(), None),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """By arity; and those of leaves that run as a level of their own, as ``leaf``."""
        leaf_map = self.leaf_map
        if leaf_map is None or not self.product_of_leaf_map():
            return self.maps.weights("gates")
        return self.maps.weights("gates") | {"leaf": (leaf_map.weight, leaf_map.bias)}
