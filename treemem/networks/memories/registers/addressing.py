"""Weights over rows, by content and by location (Graves et al. 2014, section 3.3).

NaN in an argument gives NaN in the weights of that example. No function checks for it.
"""

from __future__ import annotations

from typing import Literal

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
