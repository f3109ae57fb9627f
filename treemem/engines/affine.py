"""Linear maps and layer norms as pairs of tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

EPSILON = 1e-5
"""What every layer norm adds to the variance."""


class Affine(NamedTuple):
    """A linear map ``W x + b``, ``weight`` ``[outputs, inputs]``, or the gain and bias of a layer norm."""

    weight: torch.Tensor
    bias: torch.Tensor

    @classmethod
    def of(cls, module: torch.nn.Linear | torch.nn.LayerNorm) -> Affine:
        """The weights of a module."""
        return cls(module.weight, module.bias)


def linear(values: torch.Tensor, weights: Affine) -> torch.Tensor:
    """``W x + b``; under autocast a product of less precision, but a result of the weights' own."""
    return functional.linear(values, *weights).to(weights.bias.dtype)


def layer_norm(values: torch.Tensor, weights: Affine) -> torch.Tensor:
    """``gain * (x - mean(x)) / sqrt(var(x) + 1e-5) + bias`` along the last dimension."""
    return functional.layer_norm(values, weights.bias.shape, *weights, EPSILON)
