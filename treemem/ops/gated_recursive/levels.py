"""The gated recursive cell over the nodes of binary trees, level by level, with its backward pass written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.gated_recursive.cell import CellActivation, GatedCellWeights
from treemem.ops.gated_recursive.nodes import new_nodes, saved_nodes
from treemem.ops.second_derivative import once_differentiable, save_for_backward


class Levels(NamedTuple):
    """Inner nodes in an order in which children precede their parents.

    Attributes:
        children: the rows of both children of each inner node, int64 ``[inner nodes, 2]``. Leaves have the first rows,
            inner nodes those after them.
        ends: where each level ends among the inner nodes. Nodes of a level do not depend on each other.
    """

    children: torch.Tensor
    ends: Sequence[int]


def gated_levels(
    leaves: torch.Tensor,
    levels: Levels,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over trees: on a CPU in C++, compiled at first use, where that can be had.

    Args:
        leaves: ``[leaves, hidden_size]``.
        levels: the inner nodes.
        weights: of the cell.
        keep: by what the hidden layer of each inner node is multiplied, ``[inner nodes, inner_size]``.
        activation: of the hidden layer.

    Returns:
        The states of all rows, ``[leaves + inner nodes, hidden_size]``.
    """
    tensors = (leaves, *weights.hidden, *weights.gates, *weights.norm)
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return _Levels.apply(levels, keep, activation, differentiable, *tensors)


def gated_pairs(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over pairs ``[pairs, hidden_size]``, as :func:`gated_levels` does."""
    count = len(left)
    children = torch.arange(2 * count, device=left.device).view(2, count).t().contiguous()
    states = gated_levels(torch.cat([left, right]), Levels(children, (count,)), weights, keep, activation)
    return states[2 * count :]


class _Levels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        levels: Levels,
        keep: torch.Tensor | None,
        activation: CellActivation,
        differentiable: bool,
        leaves: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        weights = GatedCellWeights(*(Affine(*tensors[at : at + 2]) for at in (0, 2, 4)))
        nodes = new_nodes(leaves, levels.children, weights, keep, activation, differentiable=differentiable)
        nodes.compose(0, *levels.ends)
        ctx.options, ctx.ends = nodes.options, levels.ends
        save_for_backward(ctx, *nodes.tensors)
        return nodes.states

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor | None, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        nodes = saved_nodes(ctx.options, saved)
        d_states = gradient.clone(memory_format=torch.contiguous_format)
        nodes.backward(d_states, 0, *ctx.ends)
        return None, None, None, None, d_states[: nodes.first], *nodes.of_weights(d_states)
