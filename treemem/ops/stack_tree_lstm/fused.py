"""The step of a Tree-LSTM with a stack with its backward pass written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treemem.ops.activation import activation, sigmoid_backward
from treemem.ops.cell import State
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions


class StackTreeLSTMStepPair:
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
        self.reads: tuple[str, ...] = ("S",)
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
        self.kept: Mapping[str, tuple[int, ...]] = {
            "merged": (options.stack_size, hidden_size),
            "reading": (hidden_size,),
            **({"actions": (len(self._names), hidden_size)} if self._normalized else {}),
        }

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

    def forward(self, products: State, children: State, out: State, kept: State | None) -> torch.Tensor | None:
        """Write ``h`` and ``S``; return the dropout mask."""
        blocks, stacks, stack = products["gates"], children["S"], out["S"]
        blocks[:, : self._num_gates].sigmoid_()
        update = self._activation.in_place(blocks[:, self._blocks["update"]])
        mask = torch.nn.functional.dropout(torch.ones_like(update), self.dropout) if self.dropout else None
        pushed = update if mask is None else update * mask
        merged = kept["merged"] if kept is not None else torch.empty_like(stack)
        forget = self._forget(blocks)
        torch.mul(stacks[:, 0], forget[:, 0], out=merged)
        for position in range(1, self.arity):
            merged.addcmul_(stacks[:, position], forget[:, position])
        gates = blocks[:, self._blocks["actions"]].unflatten(1, (len(self._names), 1, self.hidden_size))
        if self._normalized:
            rows = gates.flatten(1, 2)
            gates = torch.softmax(rows, 1) if kept is None else torch.softmax(rows, 1, out=kept["actions"])
            gates = gates.unsqueeze(2)
        actions = dict(zip(self._names, gates.unbind(1), strict=True))
        if "no_op" in actions:
            torch.mul(merged, actions["no_op"], out=stack)
        else:
            stack.zero_()
        if "pop" in actions:
            stack[:, :-1].addcmul_(merged[:, 1:], actions["pop"])
        stack[:, 1:].addcmul_(merged[:, :-1], actions["push"])
        top = stack[:, 0]
        top.addcmul_(pushed, actions["push"].squeeze(1))
        reading = top.clone() if kept is None else kept["reading"].copy_(top)
        self._output_activation.in_place(reading)
        torch.mul(blocks[:, self._blocks["output"]], reading, out=out["h"])
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
        """Write the gradient of the preactivations and return that of the children's stacks."""
        blocks, stacks, merged, reading = products["gates"], children["S"], kept["merged"], kept["reading"]
        d_hidden, d_stack, out = gradient["h"], gradient["S"], product_gradient["gates"]
        update, output = blocks[:, self._blocks["update"]], blocks[:, self._blocks["output"]]
        torch.mul(d_hidden, reading, out=out[:, self._blocks["output"]])
        d_reading = torch.mul(d_hidden, output)
        d_top = d_stack[:, 0]
        d_top += self._output_activation.backward(d_reading, reading, d_reading)
        gates = blocks[:, self._blocks["actions"]].unflatten(1, (len(self._names), self.hidden_size))
        actions = kept["actions"] if self._normalized else gates
        d_actions = out[:, self._blocks["actions"]].unflatten(1, (len(self._names), self.hidden_size))
        pushed = update if memo is None else update * memo
        d_merged = self._through_actions(d_stack, merged, pushed, actions, d_actions)
        d_update = torch.mul(d_top, actions[:, 0], out=out[:, self._blocks["update"]])
        if memo is not None:
            d_update *= memo
        self._activation.backward(d_update, update, d_update)
        if self._normalized:
            weighted = torch.mul(d_actions, actions)
            torch.addcmul(weighted, actions, weighted.sum(1, keepdim=True), value=-1, out=d_actions)
        forget = self._forget(blocks)
        d_forget = out[:, self._blocks["forget"]].unflatten(1, (self.arity, self.hidden_size))
        d_stacks = torch.empty_like(stacks)
        for position in range(self.arity):
            torch.sum(torch.mul(d_merged, stacks[:, position]), 1, out=d_forget[:, position])
            torch.mul(d_merged, forget[:, position], out=d_stacks[:, position])
        d_gates = out[:, : self._num_gates]
        sigmoid_backward(d_gates, blocks[:, : self._num_gates], d_gates)
        return {"S": d_stacks}

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

    def _forget(self, blocks: torch.Tensor) -> torch.Tensor:
        return blocks[:, self._blocks["forget"]].unflatten(1, (self.arity, 1, self.hidden_size))
