"""The parameters of a Tree-LSTM of two children, for networks that find their trees pair by pair."""

from __future__ import annotations

import torch


class PairCell(torch.nn.Module):
    """The map of :func:`treemem.ops.pair_by_pair.compose`."""

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
