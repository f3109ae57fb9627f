"""The cell of parser and composition over the nodes of many trees, level by level."""

from __future__ import annotations

import torch

from treemem.ops.affine import Affine, linear
from treemem.ops.cell import Product, State
from treemem.ops.product_input import ChildrenInOrder
from treemem.ops.propagate import run_rows
from treemem.ops.tree_lstm import tree_lstm_step
from treemem.schedule.schedule import Schedule


def compose_levels(leaves: torch.Tensor, schedule: Schedule, cell: Affine) -> State:
    """Return ``h`` and ``c`` of all rows, each ``[rows, hidden_size]``.

    Args:
        leaves: ``[h; c]``, ``[leaf rows, 2 * hidden_size]``.
        schedule: the rows; inner ones have two children.
        cell: see :func:`treemem.ops.pair_by_pair.compose`, which is bounded.
    """
    return run_rows(_Cell(cell), schedule, leaves)


class _Cell(torch.nn.Module):
    """Leaves are their inputs; inner nodes are composed as by :func:`treemem.ops.pair_by_pair.compose`."""

    def __init__(self, cell: Affine) -> None:
        super().__init__()
        self._cell = cell

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        hidden, cell = x.chunk(2, 1)
        return {"h": hidden, "c": cell}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return self.step({"gates": linear(children["h"].flatten(1), self._cell)}, children)

    def products(self, arity: int) -> tuple[Product, ...]:
        return (Product("gates", "gates", ChildrenInOrder(), None),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"gates": (self._cell.weight[None], self._cell.bias[None])}

    def step(self, products: State, children: State) -> State:
        hidden, cell = tree_lstm_step(products["gates"], children["c"])
        return {"h": hidden, "c": cell.tanh()}

    def formula_key(self) -> str:
        return "disjoint Tree-LSTM"
