"""One row instead of weights over rows: by the straight-through estimator, or by sampling for REINFORCE."""

from __future__ import annotations

from typing import NamedTuple

import torch


class ChosenRow(NamedTuple):
    """A row for each example.

    Attributes:
        weights: 1 at the row, else 0, ``[batch, rows]``, without a gradient.
        log_probability: of the row, ``[batch]``, with the gradient of the weights that it was chosen from.
    """

    weights: torch.Tensor
    log_probability: torch.Tensor


def straight_through(weights: torch.Tensor) -> torch.Tensor:
    """Return 1 at the largest weight, else 0, with the gradient of the weights (Bengio et al. 2013).

    The first of equal weights counts. NaN in an example's weights gives NaN.

    Args:
        weights: ``[batch, rows]``.
    """
    hard = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
    return hard + (weights - weights.detach())


def chosen_row(weights: torch.Tensor, index: torch.Tensor) -> ChosenRow:
    """Return given rows, with their log-probabilities.

    Args:
        weights: probabilities, ``[batch, rows]``.
        index: the row of each example, ``[batch]``.
    """
    hard = torch.zeros_like(weights).scatter(-1, index[:, None], 1.0)
    return ChosenRow(hard, weights.gather(-1, index[:, None]).squeeze(-1).log())


def sampled_row(weights: torch.Tensor, generator: torch.Generator | None = None) -> ChosenRow:
    """Draw a row by its probability (REINFORCE, Williams 1992).

    For a loss ``L`` of each example, the gradient of ``log_probability * L.detach() + L`` is an unbiased estimate of
    that of the expected loss.

    Args:
        weights: probabilities, ``[batch, rows]``.
        generator: of random numbers; torch's own by default.

    Raises:
        RuntimeError: by torch, for weights that are negative or NaN.
    """
    return chosen_row(weights, torch.multinomial(weights.detach(), 1, generator=generator).squeeze(-1))
