"""The cell of parser and composition over the nodes of many trees, level by level."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from treemem.ops.affine import Affine, linear
from treemem.ops.cell import Product, State
from treemem.ops.native_levels import NativeStep
from treemem.ops.product_input import ChildrenInOrder
from treemem.ops.propagate import run_rows
from treemem.ops.tree_lstm import native_tree_lstm, tree_lstm_step
from treemem.schedule.schedule import Schedule


def compose_levels(leaves: torch.Tensor, schedule: Schedule, cell: Affine) -> State:
    """Return ``h`` and ``c`` of all rows, each ``[rows, hidden_size]``.

    Args:
        leaves: ``[h; c]``, ``[leaf rows, 2 * hidden_size]``.
        schedule: the rows; inner ones have two children.
        cell: see :func:`treemem.ops.disjoint_tree_lstm.weights.compose`.
    """
    return run_rows(_Cell(cell), schedule, leaves)


class _Cell:
    """Leaves are their inputs; inner nodes are what ``compose`` in ``weights.py`` makes of their children."""

    def __init__(self, cell: Affine) -> None:
        self._cell = cell

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        hidden, cell = x.chunk(2, 1)
        return {"h": hidden, "c": cell}

    def __call__(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        hidden, cell = tree_lstm_step(linear(children["h"].flatten(1), self._cell), children["c"])
        return {"h": hidden, "c": cell.tanh()}

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        return iter(())

    def products(self, arity: int) -> tuple[Product, ...]:
        return (Product("gates", "gates", ChildrenInOrder(), None),)

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {"gates": (self._cell.weight[None], self._cell.bias[None])}

    def native_step(self, arity: int) -> NativeStep:
        return native_tree_lstm(0.0, bounded=True)
