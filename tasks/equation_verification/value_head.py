"""A read-out that compares the values which the two sides of an equation hold."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from treemem.nn.encoder_output import EncoderOutput
from treemem.nn.encodings import root_encodings
from treemem.nn.heads import EqualityHead
from treemem.nn.resettable import Resettable

NUM_POINTS = 12
"""At how many points a network learns the values of expressions."""

_FIRST_OFFSET, _FIRST_WEIGHT, _FIRST_SHARPNESS, _WIDTH = 2.0, 6.0, 2.0, 64


class ValueHead(Resettable):
    """Predict whether two trees are equal from their encodings and from the values that these hold.

    A decoder ``v(h) = W_2 relu(W_1 h + b_1) + b_2`` reads the values of an expression at ``K`` points from its
    encoding. It learns from the values of every subexpression; see :mod:`treemem.tasks.equation_verification.values`.
    The score is::

        z = scale * cos(l, r) + bias - sum_k w_k * tanh(s_k * |v(l)_k - v(r)_k|)

    ``w`` and ``s`` are learned for each point.

    Args:
        hidden_size: width of an encoding.
        num_points: ``K``.

    Example:
        >>> ValueHead(4)(torch.zeros(3, 2, 4)).shape
        torch.Size([3])
    """

    nodes = "every"
    """The decoder learns from the state of each node."""
    auxiliary_loss_weights: Mapping[str, float] = {"values": 25.0}

    def __init__(self, hidden_size: int, num_points: int = NUM_POINTS) -> None:
        super().__init__()
        self.equality = EqualityHead("cosine")
        self.decoder = nn.Sequential(nn.Linear(hidden_size, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, num_points))
        self.weight, self.log_sharpness = (nn.Parameter(torch.empty(num_points)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.equality.reset_parameters()
        for layer in (self.decoder[0], self.decoder[2]):
            layer.reset_parameters()  # type: ignore[operator]
        nn.init.constant_(self.equality.bias, _FIRST_OFFSET)
        nn.init.constant_(self.weight, _FIRST_WEIGHT / len(self.weight))
        nn.init.constant_(self.log_sharpness, math.log(_FIRST_SHARPNESS))

    def forward(self, encodings: Tensor | EncoderOutput) -> Tensor:
        """The scores ``z``, ``[examples]``.

        Args:
            encodings: of pairs, ``[examples, 2, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: the examples are no pairs, or encodings of another width.
        """
        sides = root_encodings(encodings, 2, self.decoder[0].in_features)  # type: ignore[arg-type]
        left, right = self.decoder(sides).unbind(1)
        distance = torch.tanh(self.log_sharpness.exp() * (left - right).abs())
        return self.equality(sides) - distance @ self.weight
