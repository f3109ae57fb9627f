"""One query against all rows: its scores, and the mean of the rows that they weight."""

from __future__ import annotations

import torch


def dot_scores(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return ``q . k_i`` for each row (Luong et al. 2015, "dot"), ``[batch, rows]``.

    With a linear map of the query it is the bilinear form ``h W k_i`` ("general").

    Args:
        query: ``[batch, size]``.
        keys: ``[batch, rows, size]``.
    """
    return (keys * query[:, None]).sum(2)  # on a CPU faster than a product of matrices and vectors in batches


def additive_scores(query: torch.Tensor, keys: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return ``v . tanh(q + k_i)`` for each row (Bahdanau et al. 2015), ``[batch, rows]``.

    Args:
        query: a linear map of the controller's output, ``[batch, size]``.
        keys: linear maps of the rows, ``[batch, rows, size]``.
        vector: ``[size]``.
    """
    return torch.tanh(query[:, None] + keys) @ vector


def attend(scores: torch.Tensor, rows: torch.Tensor, present: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of the rows, weighted by the softmax of their scores, and the weights.

    Args:
        scores: ``[batch, rows]``.
        rows: ``[batch, rows, size]``.
        present: boolean ``[batch, rows]``; other rows weigh 0. Without a row the readout is 0.

    Returns:
        ``[batch, size]``, ``[batch, rows]``.
    """
    weights = scores.masked_fill(~present, torch.finfo(scores.dtype).min).softmax(1).masked_fill(~present, 0.0)
    return (weights[:, :, None] * rows).sum(1), weights
