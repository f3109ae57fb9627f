"""The step of a Tree-LSTM with a stack on single vectors, for the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from treemem.ops.activation import ActivationName, activation
from treemem.ops.cell import Blocks, Vectors
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions


@dataclass(frozen=True)
class UnrolledStackTreeLSTMStep:
    """:func:`treemem.ops.stack_tree_lstm.stack_tree_lstm_step` as a :class:`treemem.ops.cell.UnrolledStep`.

    Covers what :class:`treemem.ops.stack_tree_lstm.StackTreeLSTMStepPair` covers, without dropout.

    Args:
        arity: number of children.
        hidden_size: width of a state.
        options: which variant.
    """

    arity: int
    hidden_size: int
    options: StackTreeLSTMOptions

    @property
    def blocks(self) -> Blocks:
        num_gates = self.arity + len(self.options.action_names) + 1
        gate: tuple[int, ActivationName] = (self.hidden_size, "sigmoid")
        return {"gates": [*[gate] * num_gates, (self.hidden_size, self.options.activation)]}

    @property
    def states(self) -> Mapping[str, int]:
        return {"h": 0, "S": self.options.stack_size}

    @property
    def reads(self) -> tuple[str, ...]:
        return ("S",)

    def __call__(self, gates: dict[str, Vectors], children: dict[str, list[Vectors]]) -> dict[str, Vectors]:
        names, stacks = self.options.action_names, children["S"]
        forget, (*weights, output, update) = gates["gates"][: self.arity], gates["gates"][self.arity :]
        if self.options.normalize == "softmax_of_gates":  # of sigmoids, so that no exponential is large
            powers = [torch.exp(weight) for weight in weights]
            total = sum(powers[1:], start=powers[0])
            weights = [power / total for power in powers]
        actions = dict(zip(names, weights, strict=True))
        merged: list[torch.Tensor | None] = [None] * self.options.stack_size  # nothing where there are no children
        for gate, rows in zip(forget, stacks, strict=True):
            gated = [gate * row for row in rows]
            merged = [new if old is None else old + new for old, new in zip(merged, gated, strict=True)]
        stack = []
        for row in range(self.options.stack_size):
            below = merged[row + 1] if row + 1 < self.options.stack_size else None
            moved = {"push": merged[row - 1] if row else update, "pop": below, "no_op": merged[row]}
            parts = [weight * value for name, weight in actions.items() if (value := moved[name]) is not None]
            stack.append(sum(parts[1:], start=parts[0]) if parts else torch.zeros_like(update))
        return {"h": [output * activation(self.options.output_activation).function(stack[0])], "S": stack}
