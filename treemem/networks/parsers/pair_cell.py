"""Parameters of networks whose nodes are states of a Tree-LSTM of two children."""

from __future__ import annotations

import torch

from treemem.engines.affine import Affine, linear


class LinearStateLeaves(torch.nn.Module):
    """Leaves ``[h; c] = W e + b``."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(input_size, 2 * hidden_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        torch.nn.init.kaiming_normal_(self.map.weight)
        torch.nn.init.zeros_(self.map.bias)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``."""
        return linear(inputs, Affine.of(self.map))


class PairCell(torch.nn.Module):
    """The map of ``compose``."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(2 * hidden_size, 5 * hidden_size)
        PairCell.reset_parameters(self)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        torch.nn.init.orthogonal_(self.map.weight)
        torch.nn.init.zeros_(self.map.bias)
        with torch.no_grad():
            for forget in self.map.bias.chunk(5)[1:3]:
                forget.fill_(1)
