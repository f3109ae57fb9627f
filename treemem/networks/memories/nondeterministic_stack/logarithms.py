"""Sums of weights that are kept as logarithms. A weight of 0 is minus infinity, and has no gradient."""

from __future__ import annotations

import torch


def highest(values: torch.Tensor, axes: int | tuple[int, ...]) -> torch.Tensor:
    """Return the largest value along axes, which stay; finite, and without a gradient."""
    return values.detach().amax(axes, keepdim=True).clamp(min=torch.finfo(values.dtype).min)


def log(values: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of weights."""
    some = values > 0
    return torch.where(some, torch.where(some, values, 1).log(), -torch.inf)


def log_sum(values: torch.Tensor, axes: int | tuple[int, ...]) -> torch.Tensor:
    """Return the logarithm of the sum of weights along axes."""
    largest = highest(values, axes)
    return log((values - largest).exp().sum(axes)) + largest.squeeze(axes)


def difference(values: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Return ``values - total``, the logarithms of shares; minus infinity where the total is."""
    some = total > -torch.inf
    return torch.where(some, values - torch.where(some, total, 0), -torch.inf)
