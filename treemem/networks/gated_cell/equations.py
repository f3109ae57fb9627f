"""The gated recursive cell: its pointwise step, and its two-layer network over two children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import EPSILON, Affine, linear

GATES = ("children", "candidate_gate", "candidate")
"""Blocks of the preactivation, in order; ``children`` is as many blocks as there are children."""


def gated_recursive_gates(preactivation: torch.Tensor, arity: int, hidden_size: int) -> dict[str, torch.Tensor]:
    """The gates of :func:`gated_recursive_step` by the names in :data:`GATES`.

    Returns:
        ``children``, ``[m, arity, hidden_size]``, and the others, ``[m, hidden_size]``.
    """
    children, candidate_gate, candidate = preactivation.split([arity * hidden_size, hidden_size, hidden_size], dim=1)
    return {
        "children": torch.sigmoid(children).unflatten(1, (arity, hidden_size)),
        "candidate_gate": torch.sigmoid(candidate_gate),
        "candidate": candidate,
    }


def gated_recursive_step(
    preactivation: torch.Tensor, child_hidden: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The gated recursive cell of the Ordered Memory (Shen et al. 2019), after its two-layer network.

    ``h = LN(sum_k sigmoid(g_k) * h_k + sigmoid(c) * u)``, ``LN(y) = gain * (y - mean(y)) / sqrt(var(y) + 1e-5) + bias``
    with the biased variance of a row. The candidate ``u`` has no activation function, as in the authors' code.

    Args:
        preactivation: ``g_1, g_2, ...``, ``c`` and ``u``, the blocks of :data:`GATES`,
            ``[m, (arity + 2) * hidden_size]``.
        child_hidden: the children's ``h_k``, ``[m, arity, hidden_size]``.
        gain, bias: of the layer norm, ``[hidden_size]``.

    Returns:
        ``h``, ``[m, hidden_size]``.
    """
    gates = gated_recursive_gates(preactivation, *child_hidden.shape[1:])
    mixed = (gates["children"] * child_hidden).sum(1) + gates["candidate_gate"] * gates["candidate"]
    return torch.nn.functional.layer_norm(mixed, gain.shape, gain, bias, EPSILON)


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


def hidden_activation(name: CellActivation) -> Callable[[torch.Tensor], torch.Tensor]:
    """The activation function of the hidden layer: ``"gelu"``, the exact one, or ``"relu"``."""
    return functional.gelu if name == "gelu" else functional.relu


def gated_cell(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
    step: Callable[..., torch.Tensor] = gated_recursive_step,
) -> torch.Tensor:
    """:func:`gated_recursive_step` after ``W_2 drop(act(W_1 [l; r] + b_1)) + b_2``.

    Args:
        left, right: ``[..., hidden_size]``.
        weights: of the cell.
        keep: by what the hidden layer is multiplied for dropout, ``[..., inner_size]``.
        activation: of the hidden layer.
        step: what takes the step.

    Returns:
        ``[..., hidden_size]``.
    """
    hidden = hidden_activation(activation)(linear(torch.cat([left, right], -1), weights.hidden))
    preactivation = linear(hidden if keep is None else hidden * keep, weights.gates)
    children = torch.stack([left, right], -2)
    composed = step(preactivation.flatten(0, -2), children.flatten(0, -3), *weights.norm)
    return composed.view(left.shape)
