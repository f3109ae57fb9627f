"""Child-sum Tree-LSTM."""

from __future__ import annotations

import torch
from typing_extensions import Unpack

from treemem.engines.cell import Product, State
from treemem.engines.product_input import children_sum, each_child
from treemem.networks.trees.child_sum_tree_lstm.equations import (
    child_sum_tree_lstm_gates,
    child_sum_tree_lstm_step,
)
from treemem.networks.trees.parameter_sets import SetsOfAnyArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.stacked_linear import StackedLinear
from treemem.networks.trees.tree_layer import TreeLayer, TreeOptions
from treemem.trees.vocabulary import Vocabulary


class ChildSumTreeLSTMCell(SplitTreeCell):
    """The cell of :class:`ChildSumTreeLSTM`; arguments as there, ``sets`` saying which kinds share parameters."""

    ordered = False

    def __init__(self, sets: SetsOfAnyArity, options: CellOptions) -> None:
        super().__init__(sets, options)
        size = self.hidden_size
        self._gates_inputs = size, self.input_size or 0, (self.node_input_size or 0) if self.reads_labels else 0
        self.gates_map = StackedLinear(sets.count, self._gates_inputs, 3 * size)
        self.forget_map = StackedLinear(sets.count, (size, self.node_input_size or 0), size)

    def products(self, arity: int) -> tuple[Product, ...]:
        """``gates``, from the sum of the children's ``h``; ``forget``, from each child's."""
        kinds = self.sets.set_of_kind(arity)
        return Product("gates", "gates", children_sum, kinds), Product("forget", "forget", each_child, kinds)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """``gates`` and ``forget``, the same for all arities; nodes without features and label have ``x = 0``."""
        gates: torch.Tensor = self.gates_map.weight
        of_states, _, of_labels = gates.split(self._gates_inputs, dim=2)
        if not self.node_input_size:
            gates = of_states
        elif self.reads_labels and self.input_size:  # leaves alone read features
            gates = torch.cat([of_states, of_labels], dim=2)
        return {
            "gates": (gates, self.gates_map.bias),
            "forget": (self.forget_map.weight, self.forget_map.bias),
        }

    def step(self, products: State, children: State) -> State:
        """Gates and cell."""
        hidden, cell = child_sum_tree_lstm_step(products["gates"], products["forget"], children["c"], self.dropout_now)
        return {"h": hidden, "c": cell}

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The step without children for features; a vector is ``h`` already, with ``c = 0``."""
        if self.input_size is None:
            return {"h": x, "c": torch.zeros_like(x)}
        nothing = x.new_zeros(len(x), 0, self.hidden_size, dtype=self.gates_map.bias.dtype)
        hidden, cell = child_sum_tree_lstm_step(self._gates_of_leaves(x, kind), nothing.flatten(0, 1), nothing)
        return {"h": hidden, "c": cell}

    def _gates_of_leaves(self, x: torch.Tensor, kind: int) -> torch.Tensor:
        kinds = self.sets.set_of_kind(0)
        used = 0 if kinds is None else kinds[kind]
        _, weight, _ = self.gates_map.weight[used].split(self._gates_inputs, dim=1)
        bias = self.gates_map.bias[used]
        return torch.nn.functional.linear(x, weight, bias).to(bias.dtype)

    def trace(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The gates of inner nodes; see ``child_sum_tree_lstm_gates``."""
        products = self.products_of(children, x, kind)
        return child_sum_tree_lstm_gates(products["gates"], products["forget"], children["h"].shape[1])

    def leaf_trace(self, x: torch.Tensor, kind: int) -> State:
        """The gates of leaves that have features; others have none."""
        if self.input_size is None:
            return {}
        gates = self._gates_of_leaves(x, kind)
        return child_sum_tree_lstm_gates(gates, gates.new_zeros(0, self.hidden_size), 0)


class ChildSumTreeLSTM(TreeLayer, without=("arities", "max_arity")):
    """Tree-LSTM that sums over children: for any number of children, without an order (Tai et al. 2015, eq. 2-8).

    With ``h~ = sum_k h_k``: ``i, o = sigmoid(W x + U h~ + b)``, ``u = tanh(W_u x + U_u h~ + b_u)``,
    ``f_k = sigmoid(W_f x + U_f h_k + b_f)``, ``c = i * u + sum_k f_k * c_k``, ``h = o * tanh(c)``. Dropout is on ``u``
    of inner nodes.

    The trace has the gates ``forget``, ``[nodes, children, hidden_size]``, and ``input``, ``output`` and ``update``
    (before its dropout), ``[nodes, hidden_size]``.

    Args:
        hidden_size: width of ``h`` and ``c``.
        vocabulary: the labels. Without ``input_size`` and ``embedding_size``, leaves are embeddings of their labels,
            with ``c = 0``. ``x`` of an inner node is the embedding of its label; if all inner nodes have one label,
            they have no ``x``.
        input_size: width of the features, which are ``x`` instead; leaves then run the cell with ``h~ = 0``.
        shared_kinds: all nodes share one set of parameters, as in the paper; otherwise each kind has its own.
        dropout: dropout probability of ``u`` at inner nodes.
        embedding_size, node_features, leaf, number_activation, engine: see :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or an unknown option.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 3), ("sin", 1)])
        >>> layer = ChildSumTreeLSTM(16, vocabulary)
        >>> tree = Tree("Add", [Tree("x"), Tree("sin", [Tree("x")]), Tree("1")])
        >>> layer(TreeBatch.from_trees([tree], vocabulary)).root.shape
        torch.Size([1, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        shared_kinds: bool = True,
        **options: Unpack[TreeOptions],
    ) -> None:
        sets = SetsOfAnyArity(vocabulary, shared_kinds)
        super().__init__(ChildSumTreeLSTMCell, hidden_size, vocabulary, sets=sets, **options)
