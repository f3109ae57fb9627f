"""Reading and writing rows by weights, and rows that are only read. NaN in an argument spreads into the result."""

from __future__ import annotations

import torch

from treemem.errors import GraphError


def read_rows(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return ``sum over i of weights[i] * rows[i]``, ``[batch, size]`` (Graves et al. 2014, eq. 2).

    Args:
        rows: ``[batch, rows, size]``.
        weights: ``[batch, rows]``.

    Raises:
        GraphError: other shapes.
    """
    _check(rows, weights)
    return torch.einsum("br,brs->bs", weights, rows)


def convex_write(rows: torch.Tensor, weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the rows after ``m_i <- (1 - w_i) m_i + w_i v``, ``[batch, rows, size]``.

    Args:
        rows: ``[batch, rows, size]``; they stay as they are.
        weights: ``[batch, rows]``.
        value: ``[batch, size]``.

    Raises:
        GraphError: other shapes.
    """
    _check(rows, weights, value)
    return rows + weights[..., None] * (value[:, None] - rows)


def erase_and_add(rows: torch.Tensor, weights: torch.Tensor, erase: torch.Tensor, add: torch.Tensor) -> torch.Tensor:
    """Return the rows after ``m_i <- m_i * (1 - w_i e) + w_i a`` (Graves et al. 2014, eq. 3-4).

    The result is ``[batch, rows, size]``.

    Args:
        rows: ``[batch, rows, size]``; they stay as they are.
        weights: ``[batch, rows]``.
        erase, add: ``[batch, size]``; ``erase`` from 0 to 1.

    Raises:
        GraphError: other shapes.
    """
    _check(rows, weights, erase, add)
    weights = weights[..., None]
    return rows * (1 - weights * erase[:, None]) + weights * add[:, None]


def with_prefix(prefix: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the prefix rows, then the others, ``[batch, prefix + rows, size]``.

    Args:
        prefix: ``[batch, prefix, size]``.
        rows: ``[batch, rows, size]``.

    Raises:
        GraphError: the batches or widths differ.
    """
    if prefix.dim() != 3 or prefix.shape[::2] != rows.shape[::2]:
        raise GraphError(
            f"a prefix {[*prefix.shape]} does not fit rows {[*rows.shape]}; give [batch, prefix, size] of the same "
            "batch and size"
        )
    return torch.cat([prefix, rows], 1)


def _check(rows: torch.Tensor, weights: torch.Tensor, *vectors: torch.Tensor) -> None:
    if weights.shape != rows.shape[:2]:
        raise GraphError(f"rows {[*rows.shape]} need weights {[*rows.shape[:2]]}, not {[*weights.shape]}")
    for vector in vectors:
        if vector.shape != rows.shape[::2]:
            raise GraphError(f"rows {[*rows.shape]} need values {[*rows.shape[::2]]}, not {[*vector.shape]}")
