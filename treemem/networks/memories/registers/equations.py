"""Rows of registers: their addresses by content and location, one row in place of weights, reading and writing.

NaN in an argument gives NaN in the result of that example. No function checks for it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from treemem.errors import GraphError

Similarity = Literal["cosine", "dot"]


def content_weights(
    key: torch.Tensor,
    row_keys: torch.Tensor,
    sharpness: torch.Tensor | None = None,
    similarity: Similarity = "cosine",
    eps: float = 1e-6,
) -> torch.Tensor:
    """Return ``softmax(sharpness * similarity(key, row_keys))``, ``[batch, rows]`` (eq. 5-6).

    Args:
        key: ``[batch, key_size]``.
        row_keys: ``[batch, rows, key_size]``: the rows' contents, or keys that are kept apart from them.
        sharpness: ``[batch]``, not negative; 1 by default.
        similarity: ``"cosine"`` as in the paper, or ``"dot"``.
        eps: added to each squared length of the cosine, so that its gradient at a row of zeros is finite.

    Raises:
        GraphError: the widths or batches differ.
    """
    if key.dim() != 2 or row_keys.dim() != 3 or key.shape != row_keys.shape[::2]:
        raise GraphError(
            f"a key {[*key.shape]} does not fit row keys {[*row_keys.shape]}; "
            "give [batch, key_size] and [batch, rows, key_size]"
        )
    scores = torch.einsum("bk,brk->br", key, row_keys)
    if similarity == "cosine":
        lengths = (key.square().sum(-1, keepdim=True) + eps) * (row_keys.square().sum(-1) + eps)
        scores = scores / lengths.sqrt()
    return (scores if sharpness is None else sharpness[:, None] * scores).softmax(-1)


def interpolated(content: torch.Tensor, last: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return ``gate * content + (1 - gate) * last``, ``[batch, rows]`` (eq. 7).

    Args:
        content, last: weights by content, and those of the step before, ``[batch, rows]``.
        gate: ``[batch]``, from 0 to 1.
    """
    return gate[:, None] * content + (1 - gate[:, None]) * last


def shifted(weights: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    """Return the weights moved along the rows, around the end, ``[batch, rows]`` (eq. 8).

    ``shifted[i] = sum over d of shifts[d] * weights[i - d]``: a shift of 1 moves weight from row 0 to row 1.

    Args:
        weights: ``[batch, rows]``.
        shifts: a distribution over shifts ``-n, ..., 0, ..., n``, ``[batch, 2 * n + 1]``.

    Raises:
        GraphError: the number of shifts is even.
    """
    if shifts.shape[-1] % 2 == 0:
        raise GraphError(f"{shifts.shape[-1]} shifts have no middle one; give an odd number, from -n to n")
    farthest = shifts.shape[-1] // 2
    moved = torch.stack([weights.roll(offset, -1) for offset in range(-farthest, farthest + 1)], -1)
    return (moved * shifts[:, None]).sum(-1)


def sharpened(weights: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
    """Return ``weights ** power``, divided by their sum, ``[batch, rows]`` (eq. 9).

    Args:
        weights: ``[batch, rows]``, not negative, with a row above 0.
        power: ``[batch]``, at least 1.
    """
    # The result does not depend on the scale. Dividing by the largest weight keeps high powers above 0.
    powers = (weights / weights.amax(-1, keepdim=True).detach()) ** power[:, None]
    return powers / powers.sum(-1, keepdim=True)


def location_weights(
    content: torch.Tensor, last: torch.Tensor, gate: torch.Tensor, shifts: torch.Tensor, power: torch.Tensor
) -> torch.Tensor:
    """Interpolate, shift, then sharpen (eq. 7-9). The arguments are those of the three functions."""
    return sharpened(shifted(interpolated(content, last, gate), shifts), power)


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
    return torch.cat([prefix, rows], 1) if prefix.shape[1] else rows


def _check(rows: torch.Tensor, weights: torch.Tensor, *vectors: torch.Tensor) -> None:
    if weights.shape != rows.shape[:2]:
        raise GraphError(f"rows {[*rows.shape]} need weights {[*rows.shape[:2]]}, not {[*weights.shape]}")
    for vector in vectors:
        if vector.shape != rows.shape[::2]:
            raise GraphError(f"rows {[*rows.shape]} need values {[*rows.shape[::2]]}, not {[*vector.shape]}")
