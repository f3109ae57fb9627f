"""Decimal numbers as vectors."""

from __future__ import annotations

import torch

from treemem.checked_options import checked_count
from treemem.engines.activation import ActivationName, activation, checked_activation
from treemem.networks.resettable import Resettable


class NumberEncoder(Resettable):
    """The encoding of a number: ``h = phi(W_2 phi(W_1 v + b_1) + b_2)``.

    Args:
        hidden_size: width of the encoding.
        activation: ``phi``; the published Tree-RNN with a stack has ``"relu"``, all other networks the sigmoid.

    Example:
        >>> NumberEncoder(4)(torch.tensor([2.5, -1.0])).shape
        torch.Size([2, 4])
    """

    def __init__(self, hidden_size: int, activation: ActivationName = "sigmoid") -> None:
        super().__init__()
        checked_count("hidden_size", hidden_size)
        self.activation = checked_activation(activation)
        self.first = torch.nn.Linear(1, hidden_size)
        self.second = torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Encode numbers, ``[m]``, as ``[m, hidden_size]``."""
        function = activation(self.activation)
        return function(self.second(function(self.first(value.to(self.first.weight.dtype)[:, None]))))
