"""Cells of this library that go down: a step of an RNN or LSTM from the parent, whose weights know the position."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from treemem.engines.activation import ActivationName, activation
from treemem.engines.cell import Product, State
from treemem.engines.product_input import children_in_order
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.stacked_linear import StackedLinear
from treemem.networks.trees.tree_lstm.equations import tree_lstm_step
from treemem.networks.trees.tree_rnn.equations import tree_rnn_step


class DownwardSplitCell(SplitTreeCell):
    """A cell over reversed trees: ``a = W x + U_p h + b``, where ``h`` is the parent's and ``p`` the node's position.

    ``W`` and ``b`` are the same for all positions, and a root has ``h = 0``. Each ``U_p`` has its own.

    Args:
        hidden_size: width of ``h`` and ``x``.
        sets: of the upward cell; its largest arity is the number of positions.
        blocks: how many times as wide as ``h`` is ``a``.
        dropout: probability of dropout, in training.
    """

    def __init__(self, hidden_size: int, sets: SetsByArity, blocks: int, dropout: float) -> None:
        super().__init__(sets, CellOptions(hidden_size, hidden_size, True, dropout))
        self.num_positions = max(sets.arities, default=0)
        self.input_map = StackedLinear(1, (hidden_size,), blocks * hidden_size)
        self.parent_weight = torch.nn.Parameter(torch.empty(self.num_positions, blocks * hidden_size, hidden_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, each map as ``nn.Linear`` does."""
        super().reset_parameters()
        bound = 1 / math.sqrt(self.hidden_size)
        torch.nn.init.uniform_(self.parent_weight, -bound, bound)

    def products(self, arity: int) -> tuple[Product, ...]:
        """One product, ``gates``."""
        positions: Mapping[int, int] = {position: position for position in range(self.num_positions)}
        return (Product("gates", "gates", children_in_order, positions),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """``U_p`` and ``W`` side by side, and ``b``, for each position."""
        shared = self.input_map.weight.expand(self.num_positions, -1, -1)
        bias = self.input_map.bias.expand(self.num_positions, -1)
        return {"gates": (torch.cat([self.parent_weight, shared], dim=2), bias)}


class DownwardTreeRNNCell(DownwardSplitCell):
    """The step from the parent of :class:`treemem.nn.TreeRNN`; arguments as there."""

    def __init__(self, hidden_size: int, sets: SetsByArity, dropout: float, activation_name: ActivationName) -> None:
        super().__init__(hidden_size, sets, 1, dropout)
        self.activation_name = activation_name

    def step(self, products: State, children: State) -> State:
        """The activation."""
        return {"h": tree_rnn_step(products["gates"], self.activation_name, self.dropout_now)}

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """``h = f(W x + b)`` of roots."""
        return {"h": activation(self.activation_name)(self.input_map(x))}


class DownwardTreeLSTMCell(DownwardSplitCell):
    """The step from the parent of :class:`treemem.nn.TreeLSTM`; arguments as there."""

    def __init__(self, hidden_size: int, sets: SetsByArity, dropout: float) -> None:
        super().__init__(hidden_size, sets, 4, dropout)

    def step(self, products: State, children: State) -> State:
        """Gates and cell."""
        hidden, cell = tree_lstm_step(products["gates"], children["c"], self.dropout_now)
        return {"h": hidden, "c": cell}

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The step of roots, which forget nothing."""
        preactivation = self.input_map(x).to(self.input_map.bias.dtype)
        size = self.hidden_size
        without_forget = torch.cat([preactivation[:, :size], preactivation[:, 2 * size :]], dim=1)
        hidden, cell = tree_lstm_step(without_forget, preactivation.new_zeros(len(x), 0, size))
        return {"h": hidden, "c": cell}
