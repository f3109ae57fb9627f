"""The gated recursive cell over the nodes of binary trees, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.gated_recursive.cell import CellActivation, GatedCellWeights, gated_cell
from treemem.ops.gated_recursive.nodes import GatedNodes, gated_library, new_nodes
from treemem.ops.row_table import RowTable
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
    if _in_cpp(leaves, weights, keep):
        return torch.cat([leaves, _run_in_cpp(leaves, levels, weights, keep, activation)])
    table = RowTable(len(leaves) + len(levels.children), leaves.shape[1], leaves)
    table.write(slice(len(leaves)), leaves)
    for begin, end in pairwise((0, *levels.ends)):
        left, right = table.read(levels.children[begin:end].t()).unbind()
        own = gated_cell(left, right, weights, None if keep is None else keep[begin:end], activation)
        table.write(slice(len(leaves) + begin, len(leaves) + end), own)
    return table.read(slice(None))


def gated_pairs(
    pairs: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over pairs ``[2, pairs, hidden_size]``, as :func:`gated_levels` does."""
    if not _in_cpp(pairs, weights, keep):
        return gated_cell(pairs[0], pairs[1], weights, keep, activation)
    count = pairs.shape[1]
    children = torch.arange(2 * count).view(2, count).t()
    return _run_in_cpp(pairs.flatten(0, 1), Levels(children, (count,)), weights, keep, activation)


def _in_cpp(values: torch.Tensor, weights: GatedCellWeights, keep: torch.Tensor | None) -> bool:
    maps = [each for affine in weights for each in affine]
    return gated_library([values, *maps, *([] if keep is None else [keep])]) is not None


def _run_in_cpp(leaves: torch.Tensor, levels: Levels, weights: GatedCellWeights, *options: Any) -> torch.Tensor:
    tensors = (leaves, *weights.hidden, *weights.gates, *weights.norm)
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    found: torch.Tensor = _Levels.apply(levels, *options, differentiable, *tensors)
    return found


class _Levels(torch.autograd.Function):
    """The states of the inner nodes."""

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
        return nodes.states[nodes.first :]

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor | None, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        nodes = GatedNodes(ctx.options, saved)
        d_states = torch.zeros_like(nodes.states)
        d_states[nodes.first :] = gradient
        of_weights = nodes.gradients(d_states, *ctx.ends)
        return None, None, None, None, d_states[: nodes.first], *of_weights
