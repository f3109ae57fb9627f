"""The gated recursive cell of the Ordered Memory, on given trees."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn.functional import dropout, relu
from typing_extensions import Unpack

from treemem.checked_options import checked_probability
from treemem.engines.affine import EPSILON
from treemem.engines.cell import Product, State
from treemem.engines.product_input import children_in_order
from treemem.networks.gated_cell.equations import gated_recursive_gates, gated_recursive_step
from treemem.networks.gated_cell.layer import EXPANSION
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.stacked_linear import LinearByArity, StackedLinear
from treemem.networks.trees.tree_layer import ArityOptions, TreeLayer
from treemem.trees.vocabulary import Vocabulary


class GatedRecursiveCell(SplitTreeCell):
    """The cell of :class:`TreeCell`; arguments as there, ``sets`` saying which kinds share parameters.

    Leaves are projected from ``input_size``, or from vectors of ``hidden_size``.
    """

    def __init__(self, sets: SetsByArity, options: CellOptions, leaf_dropout: float) -> None:
        super().__init__(sets, options)
        hidden_size = self.hidden_size
        self.leaf_dropout = checked_probability("leaf_dropout", leaf_dropout)
        self.hidden_maps, self.gate_maps = LinearByArity(), LinearByArity()
        for arity in sets.arities:
            count, inner = sets.count(arity), EXPANSION * hidden_size
            inputs = (arity * hidden_size, self.node_input_size or 0)
            self.hidden_maps[str(arity)] = StackedLinear(count, inputs, inner)
            self.gate_maps[str(arity)] = StackedLinear(count, (inner,), (arity + 2) * hidden_size)
        leaf_size = hidden_size if self.input_size is None else self.input_size
        self.leaf_map = StackedLinear(1, (leaf_size,), hidden_size)
        self.norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)

    def products(self, arity: int) -> tuple[Product, ...]:
        """``hidden``, from the children's ``h``, and ``gates``, from its rectified values."""
        kinds, key = self.sets.set_of_kind(arity), LinearByArity.key
        return (
            Product("hidden", key("hidden", arity), self._children, kinds),
            Product("gates", key("gates", arity), self._rectified, kinds),
        )

    def _children(self, children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
        return dropout(children_in_order(children, x, products), self.dropout_now)

    def _rectified(self, children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
        return dropout(relu(products["hidden"]), self.dropout_now)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """By product and arity; and the layer norm's, as ``norm``."""
        return {
            **self.hidden_maps.weights("hidden"),
            **self.gate_maps.weights("gates"),
            "norm": (self.norm.weight, self.norm.bias),
        }

    def step(self, products: State, children: State) -> State:
        """Gates and layer norm."""
        return {"h": gated_recursive_step(products["gates"], children["h"], self.norm.weight, self.norm.bias)}

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """``h = LN(W x + b)``, with the layer norm of the inner nodes."""
        if self.training and self.leaf_dropout:
            x = torch.nn.functional.dropout(x, self.leaf_dropout)
        return {"h": self.norm(self.leaf_map(x).to(self.leaf_map.bias.dtype))}

    def trace(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The gates of inner nodes, see ``gated_recursive_gates``."""
        preactivation = self.products_of(children, x, kind)["gates"]
        return gated_recursive_gates(preactivation, children["h"].shape[1], self.hidden_size)


class TreeCell(TreeLayer):
    """The gated recursive cell of the Ordered Memory, applied to gold trees (Shen et al. 2019).

    ``x`` is the concatenation of the children's ``h_k``, followed by the features::

        g_1, ..., g_k, c, u = W_2 drop(relu(W_1 drop(x) + b_1)) + b_2
        h = LN(sum_k sigmoid(g_k) * h_k + sigmoid(c) * u)
        h = LN(W_in drop_leaf(e) + b_in) at a leaf with the vector or the features e

    As in the authors' code, the hidden layer is ``4 * hidden_size`` wide, ``u`` has no activation function, and all
    nodes share one layer norm (eps 1e-5, with gain and bias). Each node draws its own dropout. Maps start as those of
    ``nn.Linear``.

    The trace has ``children`` (``sigmoid(g_k)``), ``[nodes, children, hidden_size]``, and ``candidate_gate``
    (``sigmoid(c)``) and ``candidate`` (``u``), each ``[nodes, hidden_size]``. In training, it draws its own dropout.

    The paper has binary trees and one kind of node (``shared_kinds=True``). Its cell calls the right child ``v``
    (vertical) and the left one ``h`` (horizontal), and puts ``v`` first, in the input and among the gates. Here
    children come from left to right. For other arities, our extension, there is one gate for each child.

    Args:
        hidden_size: width of ``h``.
        vocabulary: the labels and kinds. Without ``input_size``, ``e`` is the embedding of a leaf's label.
        input_size: width of the features ``e``.
        dropout: dropout probability of the inputs of ``W_1`` and ``W_2`` (the authors' ``dropout``).
        leaf_dropout: dropout probability of a leaf's ``e`` (the authors' ``dropouti`` for logic and list operations;
            their code for sentiment drops the same entries in all leaves of a tree).
        embedding_size, node_features, arities, shared_kinds, leaf, number_activation, max_arity, engine: see
            :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or an unknown option.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["a", "b"], [("and", 2), ("or", 2)])
        >>> layer = TreeCell(16, vocabulary)
        >>> batch = TreeBatch.from_trees([Tree("and", [Tree("a"), Tree("b")]), Tree("a")], vocabulary)
        >>> layer(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        leaf_dropout: float = 0.0,
        **options: Unpack[ArityOptions],
    ) -> None:
        new_cell = partial(GatedRecursiveCell, leaf_dropout=leaf_dropout)
        super().__init__(new_cell, hidden_size, vocabulary, **options)
