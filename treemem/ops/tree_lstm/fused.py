"""The step of an n-ary Tree-LSTM with its backward pass written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treemem.ops.activation import sigmoid_backward, tanh_backward
from treemem.ops.cell import State


class TreeLSTMStepPair:
    """:func:`treemem.ops.tree_lstm.tree_lstm_step` as a step pair (:class:`treemem.ops.cell.StepPair`).

    The forward pass turns the preactivations into the gates, in place. The product is called ``gates``.

    Args:
        arity: number of children.
        hidden_size: width of a block.
        dropout: probability that an entry of ``u`` is dropped.
    """

    def __init__(self, arity: int, hidden_size: int, dropout: float = 0.0) -> None:
        self.reads: tuple[str, ...] = ("c",)
        self.arity = arity
        self.dropout = dropout
        self._sizes = [hidden_size] * (arity + 3)
        self._num_gates = (arity + 2) * hidden_size
        self.kept: Mapping[str, tuple[int, ...]] = {"tanh_cell": (hidden_size,)}

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
        tanh_cell = torch.tanh(cell) if kept is None else torch.tanh(cell, out=kept["tanh_cell"])
        torch.mul(output_gate, tanh_cell, out=out["h"])
        return mask

    def backward(
        self,
        products: State,
        children: State,
        kept: State,
        memo: torch.Tensor | None,
        gradient: State,
        product_gradient: State,
    ) -> State:
        """Write the gradient of the preactivations and return those of the children's ``c``."""
        blocks, cells, tanh_cell = products["gates"], children["c"], kept["tanh_cell"]
        input_gate, *forget, output_gate, update = blocks.split_with_sizes(self._sizes, 1)
        out = product_gradient["gates"]
        d_input, *d_forget, d_output, d_update = out.split_with_sizes(self._sizes, 1)
        d_hidden = gradient["h"]
        torch.mul(d_hidden, tanh_cell, out=d_output)
        through = torch.mul(d_hidden, output_gate)
        d_cell = tanh_backward(through, tanh_cell, through).add_(gradient["c"])
        d_new = d_cell if memo is None else d_cell * memo
        torch.mul(d_new, update, out=d_input)
        torch.mul(d_new, input_gate, out=d_update)
        d_cells = torch.empty_like(cells)
        for position, gate in enumerate(forget):
            torch.mul(d_cell, cells[:, position], out=d_forget[position])
            torch.mul(d_cell, gate, out=d_cells[:, position])
        gates = blocks[:, : self._num_gates]
        d_gates = out[:, : self._num_gates]
        sigmoid_backward(d_gates, gates, d_gates)
        tanh_backward(d_update, update, d_update)
        return {"c": d_cells}
