"""The step of a Tree-LSTM with a stack with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import activation, native_number, sigmoid_backward
from treemem.ops.cell import Memo, State, StepPair
from treemem.ops.children import Children
from treemem.ops.native_levels import NativeStep
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions

_SOURCE = Path(__file__).with_name("fused.cpp")


class StackTreeLSTMStepPair(StepPair):
    """:func:`treemem.ops.stack_tree_lstm.stack_tree_lstm_step` as a step pair (:class:`treemem.ops.cell.StepPair`).

    Covers the variants of the published tables: a stack with element-wise actions, whose top row alone is read.
    The forward pass turns the preactivations into the gates, in place. The product is called ``gates``.

    Args:
        arity: number of children.
        hidden_size: width of a state.
        options: which variant; :meth:`covers` says which ones there are.
        dropout: probability that an entry of ``u`` is dropped.
    """

    def __init__(self, arity: int, hidden_size: int, options: StackTreeLSTMOptions, dropout: float = 0.0) -> None:
        self.arity = arity
        self.dropout = dropout
        self.hidden_size = hidden_size
        self.options = options
        self._blocks = options.blocks(arity, hidden_size)
        self._names = options.action_names
        self._normalized = options.normalize == "softmax_of_gates"
        self._activation = activation(options.activation)
        self._output_activation = activation(options.output_activation)
        self._num_gates = self._blocks["update"].start

    @staticmethod
    def covers(options: StackTreeLSTMOptions) -> bool:
        """Whether this pair computes the variant."""
        return (
            options.actions == "elementwise"
            and options.normalize in ("none", "softmax_of_gates")
            and options.top_k == 1
            and not options.queue
            and not options.input_gate
        )

    @property
    def native(self) -> NativeStep:
        """The same step in C++."""
        functions = (native_number(self.options.activation), native_number(self.options.output_activation))
        actions = ("pop" in self._names, "no_op" in self._names)
        return NativeStep(_SOURCE, (self.options.stack_size, *functions, self._normalized, *actions), self.dropout)

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Memo:
        """Write ``h`` and ``S``; return the dropout mask."""
        blocks, stacks, stack = products["gates"], children["S"], out["S"]
        blocks[:, : self._num_gates].sigmoid_()
        update = self._activation.in_place(blocks[:, self._blocks["update"]])
        mask = torch.nn.functional.dropout(torch.ones_like(update), self.dropout) if self.dropout else None
        pushed = update if mask is None else update * mask
        merged = self._merged(blocks, stacks)
        actions = dict(zip(self._names, self._actions(blocks).unsqueeze(2).unbind(1), strict=True))
        if "no_op" in actions:
            torch.mul(merged, actions["no_op"], out=stack)
        else:
            stack.zero_()
        if "pop" in actions:
            stack[:, :-1].addcmul_(merged[:, 1:], actions["pop"])
        stack[:, 1:].addcmul_(merged[:, :-1], actions["push"])
        top = stack[:, 0].addcmul_(pushed, actions["push"].squeeze(1))
        torch.mul(blocks[:, self._blocks["output"]], self._output_activation.function(top), out=out["h"])
        return mask

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Memo, gradient: State
    ) -> State:
        """Overwrite the gates with the gradients of their preactivations and return that of the children's stacks."""
        blocks, stacks, d_hidden, d_stack = products["gates"], children["S"], gradient["h"], gradient["S"]
        merged, readout = self._merged(blocks, stacks), self._output_activation.function(states["S"][:, 0])
        update, output = blocks[:, self._blocks["update"]], blocks[:, self._blocks["output"]]
        d_readout = torch.mul(d_hidden, output)
        sigmoid_backward(d_hidden * readout, output, output)
        d_top = d_stack[:, 0]
        d_top += self._output_activation.backward(d_readout, readout, d_readout)
        actions = self._actions(blocks)
        d_actions = torch.empty_like(actions)
        pushed = update if memo is None else update * memo
        d_merged = self._through_actions(d_stack, merged, pushed, actions, d_actions)
        d_update = torch.mul(d_top, actions[:, 0])
        if memo is not None:
            d_update *= memo
        self._activation.backward(d_update, update, update)
        if self._normalized:
            d_actions *= actions
            d_actions.addcmul_(actions, d_actions.sum(1, keepdim=True), value=-1)
        gates = self._gates(blocks)
        sigmoid_backward(d_actions, gates, gates)
        d_stacks = torch.empty_like(stacks)
        forget = blocks[:, self._blocks["forget"]].unflatten(1, (self.arity, self.hidden_size))
        d_forget = torch.empty_like(d_hidden)
        for position, gate in enumerate(forget.unbind(1)):
            torch.mul(d_merged, gate[:, None], out=d_stacks[:, position])
            torch.sum(torch.mul(d_merged, stacks[:, position]), 1, out=d_forget)
            sigmoid_backward(d_forget, gate, gate)
        return {"S": d_stacks}

    def _merged(self, blocks: torch.Tensor, stacks: torch.Tensor) -> torch.Tensor:
        """The children's stacks, each through its forget gate, as one, ``[m, stack_size, hidden_size]``."""
        forget = blocks[:, self._blocks["forget"]].unflatten(1, (self.arity, 1, self.hidden_size))
        if not self.arity:
            return stacks.new_zeros(len(stacks), *stacks.shape[2:])
        merged = torch.mul(stacks[:, 0], forget[:, 0])
        for position in range(1, self.arity):
            merged.addcmul_(stacks[:, position], forget[:, position])
        return merged

    def _gates(self, blocks: torch.Tensor) -> torch.Tensor:
        """The gates of the actions, ``[m, actions, hidden_size]``."""
        return blocks[:, self._blocks["actions"]].unflatten(1, (len(self._names), self.hidden_size))

    def _actions(self, blocks: torch.Tensor) -> torch.Tensor:
        """The weights of the actions, ``[m, actions, hidden_size]``."""
        return torch.softmax(self._gates(blocks), 1) if self._normalized else self._gates(blocks)

    def _through_actions(
        self,
        d_stack: torch.Tensor,
        merged: torch.Tensor,
        pushed: torch.Tensor,
        actions: torch.Tensor,
        d_actions: torch.Tensor,
    ) -> torch.Tensor:
        """Write the gradient of the actions and return that of the merged stack."""
        position = {name: index for index, name in enumerate(self._names)}
        push = actions[:, None, position["push"]]
        d_push = d_actions[:, position["push"]]
        torch.sum(torch.mul(d_stack[:, 1:], merged[:, :-1]), 1, out=d_push)
        d_push.addcmul_(d_stack[:, 0], pushed)
        if "no_op" in position:
            torch.sum(torch.mul(d_stack, merged), 1, out=d_actions[:, position["no_op"]])
            d_merged = torch.mul(d_stack, actions[:, None, position["no_op"]])
        else:
            d_merged = torch.zeros_like(merged)
        d_merged[:, :-1].addcmul_(d_stack[:, 1:], push)
        if "pop" in position:
            torch.sum(torch.mul(d_stack[:, :-1], merged[:, 1:]), 1, out=d_actions[:, position["pop"]])
            d_merged[:, 1:].addcmul_(d_stack[:, :-1], actions[:, None, position["pop"]])
        return d_merged
