"""Choices among scores: the highest ones, with or without noise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

ROUNDING = 64
"""So many times the distance of neighbouring numbers, at the largest one, scores may be apart by rounding alone."""
Noise = Callable[[tuple[int, ...]], torch.Tensor]
"""Returns noise of a shape, which is added to log probabilities before a choice."""


def gumbel_noise(like: torch.Tensor) -> Noise:
    """Noise of the standard Gumbel distribution, as the authors' code draws it."""
    return lambda shape: -torch.log(-torch.log(torch.rand(shape, dtype=like.dtype, device=like.device) + 1e-20) + 1e-20)


def highest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the highest values along the last dimension, the highest first.

    Values that differ by rounding alone count as equal: they come in the order of their places. Equal pairs of tokens
    have equal scores, but for rounding, which depends on how many are computed together.

    Args:
        values: ``[..., choices]``; minus infinity where there is no choice.
        count: how many places.
    """
    ordered, place = values.sort(dim=-1, descending=True, stable=True)
    differ = ordered[..., :-1] - ordered[..., 1:] > _rounding(values)
    group = functional.pad(differ.cumsum(-1), (1, 0))
    return place.gather(-1, (group * values.shape[-1] + place).argsort(-1)[..., :count])


def first_highest(scores: torch.Tensor) -> torch.Tensor:
    """Return the place of the highest score along the last dimension: the first of :func:`highest`, but faster."""
    return (scores >= scores.amax(-1, keepdim=True) - _rounding(scores)).int().argmax(-1)


def _rounding(scores: torch.Tensor) -> torch.Tensor:
    """How far apart scores ``[..., choices]`` may be by rounding alone, ``[..., 1]``."""
    largest = scores.masked_fill(scores == -torch.inf, 0).abs().amax(-1, keepdim=True)
    return ROUNDING * torch.finfo(scores.dtype).eps * largest


def straight_through(scores: torch.Tensor, temperature: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the place of the highest score, and it as a one-hot choice.

    The choice has the gradient of ``softmax(scores / temperature)``.

    Args:
        scores: ``[..., choices]``.
        temperature: None: the choice has no gradient.
    """
    place = first_highest(scores)
    choice = (torch.arange(scores.shape[-1], device=scores.device) == place[..., None]).to(scores)
    if temperature is None:
        return place, choice
    probability = (scores / temperature).softmax(-1)
    return place, choice - probability.detach() + probability
