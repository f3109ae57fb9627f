"""The steps of a continuous recursion between its products, for drivers in C++ and in Triton, and what they read."""

from __future__ import annotations

from functools import partial
from typing import get_args

import torch
from torch.nn import functional

from treemem.engines.printer.driven import DrivenStep
from treemem.networks.gated_cell.equations import CellActivation, hidden_activation
from treemem.networks.parsers.crvnn.equations import CRvNNWeights

State = dict[str, torch.Tensor]


def _activated(activation: CellActivation, products: State, children: State) -> State:
    return {"hidden": hidden_activation(activation)(products["map"])}


def _score(products: State, children: State, weight: torch.Tensor) -> State:
    return {"score": (functional.gelu(products["window"]) * weight).sum(1, keepdim=True)}


HIDDEN_STEPS = {
    name: DrivenStep("HIDDEN_STEP", partial(_activated, name), {"map": 1}, ("hidden",), 0)
    for name in get_args(CellActivation)
}
SCORE_STEP = DrivenStep("SCORE_STEP", _score, {"window": 1}, (), 0, 1, ("score",))

MAPS = (
    *("weight1", "bias1", "weight2", "bias2", "norm"),  # of the cell
    *("window", "window_bias"),  # [hidden_size, (2 num_neighbors + 1) * hidden_size]
    *("score", "score_bias"),  # [hidden_size], [1]
    # Of features, or null: added at every position, and times how far it took its left neighbour, [hidden_size]; with
    # equation 5 to the hidden layer of the score, with 6 to the states that it reads.
    *("absent", "change"),
)
"""The names of :func:`driven_maps`."""


def driven_maps(weights: CRvNNWeights) -> list[torch.Tensor | None]:
    """Return the tensors that drivers read."""
    width = (2 * weights.num_neighbors + 1) * len(weights.window.bias)
    window, of_features = weights.window.weight[:, :width], weights.window.weight[:, width:]
    absent = change = None
    if weights.features is not None:
        yes, no = weights.features
        absent, change = (of_features @ feature if weights.equation == 5 else feature for feature in (no, yes - no))
    cell = *weights.cell.hidden, *weights.cell.gates, torch.cat(weights.cell.norm)
    return [*cell, window, weights.window.bias, *weights.score, absent, change]
