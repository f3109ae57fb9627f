"""The gated recursive cell of two children, with its two-layer network."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from treemem.ops.affine import Affine, linear
from treemem.ops.gated_recursive.step import gated_recursive_step

CellActivation = Literal["gelu", "relu"]


class GatedCellWeights(NamedTuple):
    """Of the gated recursive cell of two children.

    Its blocks are the gates of the first and of the second child, the candidate's gate and the candidate.

    Attributes:
        hidden: ``W_1``, ``[inner_size, 2 * hidden_size]``, of the two children.
        gates: ``W_2``, ``[4 * hidden_size, inner_size]``.
        norm: the layer norm, ``[hidden_size]``.
    """

    hidden: Affine
    gates: Affine
    norm: Affine


def gated_cell(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """:func:`gated_recursive_step` after ``W_2 drop(act(W_1 [l; r] + b_1)) + b_2``.

    Args:
        left, right: ``[..., hidden_size]``.
        weights: of the cell.
        keep: by what the hidden layer is multiplied for dropout, ``[..., inner_size]``.
        activation: ``"gelu"``, the exact one, or ``"relu"``.

    Returns:
        ``[..., hidden_size]``.
    """
    activate = functional.gelu if activation == "gelu" else functional.relu
    hidden = activate(linear(torch.cat([left, right], -1), weights.hidden))
    preactivation = linear(hidden if keep is None else hidden * keep, weights.gates)
    children = torch.stack([left, right], -2)
    found = gated_recursive_step(preactivation.flatten(0, -2), children.flatten(0, -3), *weights.norm)
    return found.view(left.shape)
