"""Parameters of networks whose nodes are states of a Tree-LSTM of two children."""

from __future__ import annotations

import torch

from treemem.engines.affine import Affine, linear


def draw_biases(bias: torch.Tensor) -> None:
    """Set the biases of a Tree-LSTM of two children: 1 at the forget gates, else 0."""
    torch.nn.init.zeros_(bias)
    for forget in bias.detach().chunk(5)[1:3]:
        forget.fill_(1)


def draw_lstm(lstm: torch.nn.LSTM) -> None:
    """Draw the weights of an LSTM: He for inputs, orthogonal for states; biases 1 at the forget gates, else 0."""
    for name, parameter in lstm.named_parameters():
        if name.startswith("weight_ih"):
            torch.nn.init.kaiming_normal_(parameter)
        elif name.startswith("weight_hh"):
            torch.nn.init.orthogonal_(parameter)
        else:
            torch.nn.init.zeros_(parameter)
            torch.nn.init.constant_(parameter.detach().chunk(4)[1], name.startswith("bias_ih"))


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
        draw_biases(self.map.bias)
