"""The gated recursive cell over the nodes of binary trees."""

from __future__ import annotations

import torch

from treemem.engines.cell import Product, State
from treemem.engines.native import GrowingRows, NotNative
from treemem.engines.propagate import run_rows
from treemem.networks.gated_cell.equations import (
    CellActivation,
    GatedCellWeights,
    gated_cell,
    gated_recursive_step,
    hidden_activation,
)
from treemem.schedule.schedule import Schedule


def gated_levels(
    leaves: torch.Tensor,
    schedule: Schedule,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over trees, in C++ where it can be used; that has no second derivatives.

    Args:
        leaves: ``[leaf rows, hidden_size]``.
        schedule: the rows; inner ones have two children.
        weights: of the cell.
        keep: by what the hidden layer of each inner row is multiplied, ``[inner rows, inner_size]``.
        activation: of the hidden layer.

    Returns:
        The states of all rows, ``[rows, hidden_size]``.
    """
    return run_rows(_Cell(weights, activation), schedule, leaves, keep)["h"]


def growing_states(
    states: torch.Tensor, children: torch.Tensor, weights: GatedCellWeights, keep: torch.Tensor | None
) -> GrowingRows | None:
    """Return what fills in the states of inner rows in C++, or None if that cannot be used. They have no gradients.

    Args:
        states: of all rows, ``[rows, hidden_size]``; those of leaves come first and are filled in.
        children: the rows of the children of each inner row, int64 ``[inner rows, 2]``; may be filled in later.
        weights: of the cell.
        keep: as in :func:`gated_levels`; may be filled in later.
    """
    try:
        return GrowingRows(_Cell(weights, "gelu"), {"h": states}, children, keep)
    except NotNative:
        return None


class _Cell(torch.nn.Module):
    """Leaves are their inputs; inner nodes are composed by :func:`gated_cell`, and their features are its ``keep``."""

    gain: torch.Tensor
    shift: torch.Tensor

    def __init__(self, weights: GatedCellWeights, activation: CellActivation) -> None:
        super().__init__()
        self._weights, self._activation = weights, activation
        for name, value in zip(("gain", "shift"), weights.norm, strict=True):
            self.register_buffer(name, value)

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        left, right = children["h"].unbind(1)
        return {"h": gated_cell(left, right, self._weights, x, self._activation)}

    def products(self, arity: int) -> tuple[Product, ...]:
        return Product("hidden", "hidden", self._children, None), Product("gates", "gates", self._activated, None)

    def _children(self, children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
        return children["h"].flatten(1)

    def _activated(self, children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
        hidden = hidden_activation(self._activation)(products["hidden"])
        return hidden if x is None else hidden * x

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        return {name: (affine.weight[None], affine.bias[None]) for name, affine in self._weights._asdict().items()}

    def step(self, products: State, children: State) -> State:
        return {"h": gated_recursive_step(products["gates"], children["h"], self.gain, self.shift)}

    def formula_key(self) -> tuple[str, CellActivation]:
        return "gated cell of two", self._activation
