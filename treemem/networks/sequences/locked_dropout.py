"""Dropout that is the same at every token of a sequence."""

from __future__ import annotations

import torch
from torch.nn import functional


def locked_dropout(value: torch.Tensor, probability: float, training: bool) -> torch.Tensor:
    """Drop entries of vectors along sequences, one draw a sequence for all its tokens (Merity et al. 2018).

    Args:
        value: ``[sequences, longest, size]``.
        probability: that an entry is dropped; those left are divided by ``1 - probability``.
        training: nothing is dropped otherwise.
    """
    if not training or not probability:
        return value
    mask = functional.dropout(value.new_ones(len(value), 1, value.shape[2]), probability)
    return value * mask
