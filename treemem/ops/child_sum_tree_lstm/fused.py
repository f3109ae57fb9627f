"""The step of a child-sum Tree-LSTM with its backward pass written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treemem.ops.activation import sigmoid_backward, tanh_backward
from treemem.ops.cell import State


class ChildSumTreeLSTMStepPair:
    """:func:`treemem.ops.child_sum_tree_lstm.child_sum_tree_lstm_step` as a step pair.

    The forward pass turns the preactivations into the gates, in place. The products are called ``gates`` (input, output
    and update) and ``forget`` (one row a child).

    Args:
        hidden_size: width of a gate.
        dropout: probability that an entry of ``u`` is dropped.
    """

    def __init__(self, hidden_size: int, dropout: float = 0.0) -> None:
        self.reads: tuple[str, ...] = ("c",)
        self.kept: Mapping[str, tuple[int, ...]] = {"tanh_cell": (hidden_size,)}
        self.dropout = dropout
        self._sizes = [hidden_size] * 3

    def forward(self, products: State, children: State, out: State, kept: State | None) -> torch.Tensor | None:
        """Write ``h`` and ``c``; return the dropout mask."""
        input_gate, output_gate, update = products["gates"].split_with_sizes(self._sizes, 1)
        input_gate.sigmoid_()
        output_gate.sigmoid_()
        update.tanh_()
        forget, cell = products["forget"].sigmoid_(), out["c"]
        torch.sum(forget.view(children["c"].shape) * children["c"], 1, out=cell)
        mask = torch.nn.functional.dropout(torch.ones_like(update), self.dropout) if self.dropout else None
        cell.addcmul_(input_gate, update if mask is None else update * mask)
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
        """Write the gradients of the preactivations and return those of the children's ``c``."""
        input_gate, output_gate, update = products["gates"].split_with_sizes(self._sizes, 1)
        d_input, d_output, d_update = product_gradient["gates"].split_with_sizes(self._sizes, 1)
        forget, d_forget, tanh_cell = products["forget"], product_gradient["forget"], kept["tanh_cell"]
        sigmoid_backward(gradient["h"] * tanh_cell, output_gate, d_output)
        through = gradient["h"] * output_gate
        d_cell = tanh_backward(through, tanh_cell, through).add_(gradient["c"])
        d_new = d_cell if memo is None else d_cell * memo
        sigmoid_backward(d_new * update, input_gate, d_input)
        tanh_backward(d_new * input_gate, update, d_update)
        d_cells = d_cell[:, None] * forget.view(children["c"].shape)
        torch.mul(d_cell[:, None], children["c"], out=d_forget.view(children["c"].shape))
        sigmoid_backward(d_forget, forget, d_forget)
        return {"c": d_cells}
