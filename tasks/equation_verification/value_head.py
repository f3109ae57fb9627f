"""A read-out that compares the values of the two sides of an equation, as a network knows them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from treemem.heads import EqualityHead
from treemem.networks.encoder_output import EncoderOutput
from treemem.networks.encodings import root_encodings
from treemem.networks.resettable import Resettable

NUM_POINTS = 12
"""At how many points a network learns the values of expressions."""

_WIDTH = 128
_FIRST_BIAS = 2.0
_FIRST_WEIGHT = 6.0  # of all points together
_FIRST_SHARPNESS = 0.5
_LEAST_ERROR = 0.02
"""The least expected error, about ``asinh(51) - asinh(50)``."""


class ValueHead(Resettable):
    """Predict whether two trees are equal from their encodings and from the values that these hold.

    A decoder with one hidden layer reads three numbers for each of ``K`` points from an encoding ``h``: ``v(h)_k``, the
    ``asinh`` of the value of the expression there; ``e(h)_k``, the error that it expects ``v(h)_k`` to have; and the
    logit of ``p(h)_k``, the probability that the expression has a value. It learns from the values of all
    subexpressions (:mod:`treemem.tasks.equation_verification.values`). The score is that of the cosine, less the
    distances at the points where both sides have a value, in units of the expected errors::

        z = scale * cos(l, r) + bias - sum_k w_k * p(l)_k * p(r)_k * tanh(s_k * d_k)
        d_k = |v(l)_k - v(r)_k| / (e(l)_k + e(r)_k)

    ``w`` and ``s`` are learned. So a network can tell near numbers apart if it knows them well, and where it is unsure
    even a large distance says little. Expected errors that depend on the input are those of Nix & Weigend (1994).

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
        self.hidden = nn.Linear(hidden_size, _WIDTH)
        self.decoded = nn.Linear(_WIDTH, 3 * num_points)
        self.weight, self.log_sharpness = (nn.Parameter(torch.empty(num_points)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        nn.init.constant_(self.equality.bias, _FIRST_BIAS)
        nn.init.constant_(self.weight, _FIRST_WEIGHT / len(self.weight))
        nn.init.constant_(self.log_sharpness, math.log(_FIRST_SHARPNESS))

    def decode(self, encodings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``v``, ``e`` and the logits of ``p``, each ``[..., K]``, in single precision at least.

        Args:
            encodings: ``[..., hidden_size]``.
        """
        decoded = self.decoded(torch.relu(self.hidden(encodings)))
        value, error, logit = (decoded if decoded.dtype == torch.float64 else decoded.float()).chunk(3, -1)
        return value, _LEAST_ERROR + functional.softplus(error), logit

    def forward(self, encodings: Tensor | EncoderOutput) -> Tensor:
        """The scores ``z``, ``[examples]``.

        Args:
            encodings: of pairs, ``[examples, 2, hidden_size]``, or what an encoder returned for them.

        Raises:
            GraphError: the examples are no pairs, or encodings of another width.
        """
        sides = root_encodings(encodings, 2, self.hidden.in_features)
        value, error, logit = self.decode(sides)
        both = torch.sigmoid(logit).prod(1)
        distance = torch.tanh(self.log_sharpness.exp() * (value[:, 0] - value[:, 1]).abs() / error.sum(1))
        return self.equality(sides) - (both * distance) @ self.weight
