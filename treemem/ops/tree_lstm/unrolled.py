"""The step of an n-ary Tree-LSTM on single vectors, for the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from treemem.ops.activation import ActivationName
from treemem.ops.cell import Blocks, Vectors


@dataclass(frozen=True)
class UnrolledTreeLSTMStep:
    """:func:`treemem.ops.tree_lstm.tree_lstm_step` as a :class:`treemem.ops.cell.UnrolledStep`.

    Without dropout.

    Args:
        arity: number of children.
        hidden_size: width of a block.
    """

    arity: int
    hidden_size: int

    @property
    def blocks(self) -> Blocks:
        gate: tuple[int, ActivationName] = (self.hidden_size, "sigmoid")
        return {"gates": [*[gate] * (self.arity + 2), (self.hidden_size, "tanh")]}

    @property
    def states(self) -> Mapping[str, int]:
        return {"h": 0, "c": 0}

    @property
    def reads(self) -> tuple[str, ...]:
        return ("c",)

    def __call__(self, gates: dict[str, Vectors], children: dict[str, list[Vectors]]) -> dict[str, Vectors]:
        input_gate, *forget, output, update = gates["gates"]
        cell = input_gate * update
        for gate, (child_cell,) in zip(forget, children["c"], strict=True):
            cell = cell + gate * child_cell
        return {"h": [output * torch.tanh(cell)], "c": [cell]}
