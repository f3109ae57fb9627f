"""The cell of parser and composition over the nodes of many trees, level by level."""

from __future__ import annotations

import torch

from treemem.ops.affine import Affine
from treemem.ops.cell import Product, State
from treemem.ops.levels import run_levels
from treemem.ops.product_input import ChildrenInOrder
from treemem.ops.tree_lstm import TreeLSTMStepPair
from treemem.schedule.schedule import Schedule


def compose_levels(leaves: torch.Tensor, schedule: Schedule, cell: Affine) -> State:
    """Return ``h`` and ``c`` of all rows, each ``[rows, hidden_size]``.

    Args:
        leaves: ``[h; c]``, ``[leaf rows, 2 * hidden_size]``.
        schedule: the rows; inner ones have two children.
        cell: see :func:`treemem.ops.disjoint_tree_lstm.weights.compose`.
    """
    return run_levels(_Cell(cell), schedule, leaves, None)  # type: ignore[arg-type]


class _Cell:
    """What levels need of a cell. Leaves are their inputs; inner nodes are composed."""

    def __init__(self, cell: Affine) -> None:
        self._cell = cell

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        hidden, cell = x.chunk(2, 1)
        return {"h": hidden, "c": cell}

    def products(self, arity: int) -> tuple[Product, ...]:
        return (Product("gates", "gates", ChildrenInOrder(), None),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"gates": (self._cell.weight[None], self._cell.bias[None])}

    def step_pair(self, arity: int) -> TreeLSTMStepPair:
        return TreeLSTMStepPair(arity, self._cell.weight.shape[1] // 2, bounded=True)
