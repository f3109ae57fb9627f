"""The step of a Tree-RNN with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import ActivationName, activation, native_number
from treemem.ops.cell import Memo, State, StepPair
from treemem.ops.children import Children
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


class TreeRNNStepPair(StepPair):
    """:func:`treemem.ops.tree_rnn.tree_rnn_step` as a step pair (:class:`treemem.ops.cell.StepPair`).

    The forward pass turns the preactivation into its value, in place. The product is called ``gates``.

    Args:
        activation_name: the activation.
        dropout: probability that an entry of ``h`` is dropped.
    """

    def __init__(self, activation_name: ActivationName, dropout: float = 0.0) -> None:
        self.dropout = dropout
        self._function = native_number(activation_name)
        self._activation = activation(activation_name)

    @property
    def native(self) -> NativeStep:
        """The same step in C++."""
        return NativeStep(_SOURCE, (self._function,), self.dropout)

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Memo:
        """Write ``h``; return the dropout mask."""
        hidden = self._activation.in_place(products["gates"])
        if not self.dropout:
            out["h"].copy_(hidden)
            return None
        mask = torch.nn.functional.dropout(torch.ones_like(hidden), self.dropout)
        torch.mul(hidden, mask, out=out["h"])
        return mask

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Memo, gradient: State
    ) -> State:
        """Overwrite the preactivation's value with the gradient of the preactivation."""
        d_hidden = gradient["h"] if memo is None else gradient["h"] * memo
        self._activation.backward(d_hidden, products["gates"], products["gates"])
        return {}
