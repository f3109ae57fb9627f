"""The step of an n-ary Tree-LSTM in C++, and in torch with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import sigmoid_backward, tanh_backward
from treemem.ops.cell import State
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_tree_lstm(dropout: float, *, bounded: bool = False) -> NativeStep:
    """:func:`treemem.ops.tree_lstm.tree_lstm_step`; its product is called ``gates``.

    Args:
        dropout: probability that an entry of ``u`` is dropped.
        bounded: whether a node hands ``tanh(c)`` to its parent as ``c``.
    """
    return NativeStep(_SOURCE, (int(bounded),), dropout)


class TreeLSTMStepPair:
    """:func:`treemem.ops.tree_lstm.tree_lstm_step` as a forward and a backward pass.

    The forward pass turns the preactivations into the gates, in place. The product is called ``gates``.

    Args:
        arity: number of children.
        hidden_size: width of a block.
        dropout: probability that an entry of ``u`` is dropped.
        bounded: whether a node hands ``tanh(c)`` to its parent as ``c``.
    """

    def __init__(self, arity: int, hidden_size: int, dropout: float = 0.0, *, bounded: bool = False) -> None:
        self.arity = arity
        self.dropout = dropout
        self.bounded = bounded
        self._sizes = [hidden_size] * (arity + 3)
        self._num_gates = (arity + 2) * hidden_size
        self.hidden_size = hidden_size

    def forward(self, products: State, children: State, out: State, kept: State | None) -> torch.Tensor | None:
        """Write ``h`` and ``c``; return the dropout mask."""
        blocks, cells, cell = products["gates"], children["c"], out["c"]
        blocks[:, : self._num_gates].sigmoid_()
        input_gate, *forget, output_gate, update = blocks.split_with_sizes(self._sizes, 1)
        update.tanh_()
        torch.mul(input_gate, update, out=cell)
        mask = torch.nn.functional.dropout(torch.ones_like(update), self.dropout) if self.dropout else None
        if mask is not None:
            cell.mul_(mask)
        for position, gate in enumerate(forget):
            cell.addcmul_(gate, cells[:, position])
        torch.mul(output_gate, cell.tanh_() if self.bounded else torch.tanh(cell), out=out["h"])
        return mask

    def backward(
        self,
        products: State,
        children: State,
        states: State,
        kept: State,
        memo: torch.Tensor | None,
        gradient: State,
    ) -> State:
        """Overwrite the gates with the gradients of their preactivations and return those of the children's ``c``."""
        blocks, cells, d_hidden = products["gates"], children["c"], gradient["h"]
        tanh_cell = states["c"] if self.bounded else torch.tanh(states["c"])
        input_gate, *forget, output_gate, update = blocks.split_with_sizes(self._sizes, 1)
        through = torch.mul(d_hidden, output_gate)
        if self.bounded:
            through.add_(gradient["c"])
        d_cell = tanh_backward(through, tanh_cell, through)
        if not self.bounded:
            d_cell.add_(gradient["c"])
        sigmoid_backward(tanh_cell * d_hidden, output_gate, output_gate)
        d_cells = torch.empty_like(cells)
        d_gate = torch.empty_like(d_cell)
        for position, gate in enumerate(forget):
            torch.mul(d_cell, gate, out=d_cells[:, position])
            sigmoid_backward(torch.mul(d_cell, cells[:, position], out=d_gate), gate, gate)
        d_new = d_cell if memo is None else d_cell.mul_(memo)
        d_update = torch.mul(d_new, input_gate, out=d_gate)
        sigmoid_backward(d_new.mul_(update), input_gate, input_gate)
        tanh_backward(d_update, update, update)
        return {"c": d_cells}
