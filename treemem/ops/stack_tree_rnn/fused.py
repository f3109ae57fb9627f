"""The step of a Tree-RNN with a stack, reading its children's tops, with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import ActivationName, activation, native_number, sigmoid_backward
from treemem.ops.cell import Memo, State, StepPair
from treemem.ops.children import Children
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


class StackTreeRNNStepPair(StepPair):
    """:func:`treemem.ops.stack_tree_rnn.stack_tree_rnn_step` as a step pair (:class:`treemem.ops.cell.StepPair`).

    The forward pass turns the products, called ``hidden``, ``control`` and ``rows``, into their values, in place.

    Args:
        hidden_size: width of ``h``.
        stack_size: number of stack rows.
        activation_name, no_op, pop_zero_before_map, dropout: as for the step.
    """

    def __init__(
        self,
        hidden_size: int,
        stack_size: int,
        activation_name: ActivationName,
        no_op: bool,
        pop_zero_before_map: bool,
        dropout: float = 0.0,
    ) -> None:
        self.dropout = dropout
        self.no_op = no_op
        self._function = native_number(activation_name)
        self._activation = activation(activation_name)
        self._control = [hidden_size, 2 + no_op]
        self._rows = (stack_size + pop_zero_before_map, 2 + no_op, hidden_size)
        self._stack_size = stack_size
        self._popped = stack_size if pop_zero_before_map else stack_size - 1

    @property
    def native(self) -> NativeStep:
        """The same step in C++."""
        options = (self._stack_size, self._function, self.no_op, self._popped == self._stack_size)
        return NativeStep(_SOURCE, options, self.dropout)

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Memo:
        """Write ``h`` and ``S``; return the dropout mask."""
        hidden, stack = self._activation.in_place(products["hidden"]), out["S"]
        update, action = products["control"].split_with_sizes(self._control, 1)
        update.sigmoid_()
        action.copy_(torch.softmax(action, 1))
        mapped = products["rows"].sigmoid_().view(-1, *self._rows)
        push, pop, *no_op = action[:, :, None, None].unbind(1)
        torch.mul(mapped[:, 1 : self._popped + 1, 1], pop, out=stack[:, : self._popped])
        stack[:, self._popped :].zero_()
        stack[:, 1:].addcmul_(mapped[:, : self._stack_size - 1, 0], push)
        stack[:, 0].addcmul_(update, action[:, :1])
        if no_op:
            stack.addcmul_(mapped[:, : self._stack_size, 2], no_op[0])
        mask = torch.nn.functional.dropout(torch.ones_like(hidden), self.dropout) if self.dropout else None
        out["h"].copy_(hidden if mask is None else hidden * mask)
        return mask

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Memo, gradient: State
    ) -> State:
        """Overwrite the products' values with their gradients."""
        d_hidden, d_stack = gradient["h"], gradient["S"]
        if memo is not None:
            d_hidden = d_hidden * memo
        self._activation.backward(d_hidden, products["hidden"], products["hidden"])
        update, action = products["control"].split_with_sizes(self._control, 1)
        mapped = products["rows"].view(-1, *self._rows)
        d_mapped = torch.zeros_like(mapped)
        last, popped = self._stack_size - 1, self._popped
        # Where in the stack each action's candidate rows went, and which of the mapped rows they are.
        parts = [(d_stack[:, 1:], slice(0, last)), (d_stack[:, :popped], slice(1, popped + 1))]
        parts += [(d_stack, slice(0, self._stack_size))] if self.no_op else []
        weights = action[:, :, None, None].unbind(1)
        found = []
        for position, (d_part, rows) in enumerate(parts):
            found.append((d_part * mapped[:, rows, position]).sum((1, 2)))
            torch.mul(d_part, weights[position], out=d_mapped[:, rows, position])
        found[0] += (d_stack[:, 0] * update).sum(1)
        d_update = d_stack[:, 0] * action[:, :1]
        d_weights = torch.stack(found, 1)
        weighted = d_weights * action
        torch.addcmul(weighted, action, weighted.sum(1, keepdim=True), value=-1, out=action)
        sigmoid_backward(d_update, update, update)
        sigmoid_backward(d_mapped, mapped, mapped)
        return {}
