"""The parameters of networks that compose tokens with the gated recursive cell of two children."""

from __future__ import annotations

import torch

from treemem.engines.affine import EPSILON, Affine, layer_norm, linear
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.resettable import Resettable

EXPANSION = 4  # the hidden layer is so many times as wide as a state, as in the authors' code


class Leaves(Resettable):
    """Leaves ``LN(W e + b)``.

    Args:
        input_size: width of the tokens' vectors.
        hidden_size: width of a leaf.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(input_size, hidden_size)
        self.norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the leaves of ``inputs [..., input_size]``."""
        return layer_norm(linear(inputs, Affine.of(self.map)), Affine.of(self.norm))


class GatedCell(Resettable):
    """The cell of ``gated_cell``.

    Args:
        hidden_size: width of a state.
        inner_size: width of the hidden layer; None: ``4 * hidden_size``.
    """

    def __init__(self, hidden_size: int, inner_size: int | None = None) -> None:
        super().__init__()
        inner = EXPANSION * hidden_size if inner_size is None else inner_size
        self.hidden_map = torch.nn.Linear(2 * hidden_size, inner)
        self.gate_map = torch.nn.Linear(inner, 4 * hidden_size)
        self.norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON)

    def weights(self) -> GatedCellWeights:
        """The parameters as operations take them."""
        return GatedCellWeights(*(Affine.of(module) for module in (self.hidden_map, self.gate_map, self.norm)))
