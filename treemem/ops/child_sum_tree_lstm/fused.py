"""The step of a child-sum Tree-LSTM with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import sigmoid_backward, tanh_backward
from treemem.ops.cell import Memo, State, StepPair
from treemem.ops.children import Children
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


class ChildSumTreeLSTMStepPair(StepPair):
    """:func:`treemem.ops.child_sum_tree_lstm.child_sum_tree_lstm_step` as a step pair.

    The forward pass turns the preactivations into the gates, in place. The products are called ``gates`` (input, output
    and update) and ``forget`` (one row a child).

    Args:
        hidden_size: width of a gate.
        dropout: probability that an entry of ``u`` is dropped.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        self.dropout = dropout
        self._sizes = [hidden_size] * 3

    @property
    def native(self) -> NativeStep:
        """The same step in C++."""
        return NativeStep(_SOURCE, dropout=self.dropout)

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Memo:
        """Write ``h`` and ``c``; return the dropout mask."""
        input_gate, output_gate, update = products["gates"].split_with_sizes(self._sizes, 1)
        input_gate.sigmoid_()
        output_gate.sigmoid_()
        update.tanh_()
        forget, cell = products["forget"].sigmoid_(), out["c"]
        torch.sum(forget.view(children["c"].shape) * children["c"], 1, out=cell)
        mask = torch.nn.functional.dropout(torch.ones_like(update), self.dropout) if self.dropout else None
        cell.addcmul_(input_gate, update if mask is None else update * mask)
        torch.mul(output_gate, torch.tanh(cell), out=out["h"])
        return mask

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Memo, gradient: State
    ) -> State:
        """Overwrite the gates with the gradients of their preactivations and return those of the children's ``c``."""
        input_gate, output_gate, update = products["gates"].split_with_sizes(self._sizes, 1)
        forget, cells, tanh_cell = products["forget"], children["c"], torch.tanh(states["c"])
        through = gradient["h"] * output_gate
        d_cell = tanh_backward(through, tanh_cell, through).add_(gradient["c"])
        sigmoid_backward(tanh_cell.mul_(gradient["h"]), output_gate, output_gate)
        d_cells = d_cell[:, None] * forget.view(cells.shape)
        sigmoid_backward((d_cell[:, None] * cells).view(forget.shape), forget, forget)
        d_new = d_cell if memo is None else d_cell.mul_(memo)
        d_update = d_new * input_gate
        sigmoid_backward(d_new.mul_(update), input_gate, input_gate)
        tanh_backward(d_update, update, update)
        return {"c": d_cells}
