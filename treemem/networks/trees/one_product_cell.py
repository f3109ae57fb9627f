"""The base of cells whose nodes take one matrix product, of the children in order."""

from __future__ import annotations

import torch

from treemem.engines.cell import Product, State
from treemem.engines.product_input import children_in_order
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.stacked_linear import LinearByArity, StackedLinear


class OneProductCell(SplitTreeCell):
    """A cell with one product, ``gates``, of the children's ``h`` one after the other, then the features.

    Leaves that have features take the same step without children; others are vectors, which are ``h`` already.

    Args:
        sets, options: see :class:`SplitTreeCell`.

    Attributes:
        maps: by arity, the map of its nodes.
        leaf_map: the map of the leaves' features; None if leaves have none.
    """

    sets: SetsByArity

    def __init__(self, sets: SetsByArity, options: CellOptions) -> None:
        super().__init__(sets, options)
        self.maps = LinearByArity({str(arity): self.new_map(arity) for arity in sets.arities})
        inputs = self.input_size
        self.leaf_map = None if inputs is None else StackedLinear(1, (inputs,), self.outputs(0))

    def outputs(self, arity: int) -> int:
        """Width of the product of nodes with so many children."""
        raise NotImplementedError

    def new_map(self, arity: int) -> StackedLinear:
        """The map of nodes with so many children."""
        inputs = arity * self.hidden_size + (self.node_input_size or 0)
        return StackedLinear(self.sets.count(arity), (inputs,), self.outputs(arity))

    def products(self, arity: int) -> tuple[Product, ...]:
        """One product, ``gates``."""
        key, kinds = LinearByArity.key("gates", arity), self.sets.set_of_kind(arity)
        return (Product("gates", key, children_in_order, kinds, parts=self.parts(arity)),)

    def parts(self, arity: int) -> tuple[int, ...] | None:
        """See :class:`treemem.engines.cell.Product`."""
        return None

    def leaf_products(self) -> tuple[Product, ...]:
        """The product of features; leaves that are vectors have none."""
        return (
            () if self.leaf_map is None else (Product("gates", "leaf", children_in_order, None, parts=self.parts(0)),)
        )

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """By arity; and those of leaves that run as a level of their own, as ``leaf``."""
        weights = self.maps.weights("gates")
        if self.leaf_map is not None and self.leaf_products():
            weights["leaf"] = self.leaf_map.weight, self.leaf_map.bias
        return weights

    @property
    def child_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each state that the step reads of a child."""
        return {}

    def states(self, preactivation: torch.Tensor, children: State, dropout: float) -> State:
        """The states from the product and the children's states ``[m, arity, ...]``."""
        raise NotImplementedError

    def named_gates(self, preactivation: torch.Tensor, arity: int) -> State:
        """The gates by name, for the trace."""
        return {}

    def step(self, products: State, children: State) -> State:
        """The states; see :meth:`states`."""
        return self.states(products["gates"], children, self.dropout_now if children["h"].shape[1] else 0.0)

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The step without children for features; a vector is ``h`` already, and its other states are 0."""
        if self.leaf_map is None:
            return {"h": x} | {name: x.new_zeros(len(x), *shape) for name, shape in self.child_shapes.items()}
        product = self.leaf_map(x).to(self.leaf_map.bias.dtype)
        nothing = {name: product.new_zeros(len(x), 0, *shape) for name, shape in self.child_shapes.items()}
        return self.states(product, nothing, 0.0)

    def trace(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The gates of inner nodes."""
        return self.named_gates(self.products_of(children, x, kind)["gates"], children["h"].shape[1])

    def leaf_trace(self, x: torch.Tensor, kind: int) -> State:
        """The gates of leaves that have features; others have none."""
        return {} if self.leaf_map is None else self.named_gates(self.leaf_map(x).to(self.leaf_map.bias.dtype), 0)
