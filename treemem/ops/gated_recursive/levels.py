"""The gated recursive cell over the nodes of binary trees, level by level, with its backward pass written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.ops.gated_recursive.cell import GatedCellWeights
from treemem.ops.gated_recursive.fused import GatedRecursiveStepPair
from treemem.ops.second_derivative import without_second_derivative


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
    leaves: torch.Tensor, levels: Levels, weights: GatedCellWeights, keep: torch.Tensor | None = None
) -> torch.Tensor:
    """Run :func:`gated_cell` over trees.

    Args:
        leaves: ``[leaves, hidden_size]``.
        levels: the inner nodes.
        weights: of the cell.
        keep: by what the hidden layer of each inner node is multiplied, ``[inner nodes, 4 * hidden_size]``.

    Returns:
        The states of all rows, ``[leaves + inner nodes, hidden_size]``.
    """
    return _GatedLevels.apply(levels, keep, leaves, *weights.hidden, *weights.gates, *weights.norm)


class _GatedLevels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, levels: Levels, keep: torch.Tensor | None, leaves: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        hidden_weight, hidden_bias, gate_weight, gate_bias, gain, bias = weights
        first, size = leaves.shape
        count = len(levels.children)
        states = leaves.new_empty(first + count, size)
        states[:first] = leaves
        before, hidden, gates = (leaves.new_empty(count, 4 * size) for _ in range(3))
        step = GatedRecursiveStepPair(2, size, gain, bias)
        kept = {name: leaves.new_empty(count, *shape) for name, shape in step.kept.items()}
        for begin, end in pairwise((0, *levels.ends)):
            part = slice(begin, end)
            children = states.index_select(0, levels.children[part].flatten())
            torch.addmm(hidden_bias, children.view(-1, 2 * size), hidden_weight.t(), out=before[part])
            hidden[part] = functional.gelu(before[part])
            if keep is not None:
                hidden[part] *= keep[part]
            torch.addmm(gate_bias, hidden[part], gate_weight.t(), out=gates[part])
            step.forward(
                {"gates": gates[part]},
                {"h": children.view(-1, 2, size)},  # type: ignore[arg-type]
                {"h": states[first + begin : first + end]},
                {name: value[part] for name, value in kept.items()},
            )
        ctx.levels, ctx.keep, ctx.step, ctx.names = levels, keep, step, list(kept)
        ctx.save_for_backward(hidden_weight, gate_weight, states, before, hidden, gates, *kept.values())
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_weight, gate_weight, states, before, hidden, gates, *saved = ctx.saved_tensors
        kept = dict(zip(ctx.names, saved, strict=True))
        size, first = states.shape[1], len(states) - len(before)
        d_states, d_gates, d_before = gradients[0].clone(), gates.clone(), torch.empty_like(before)
        for begin, end in reversed(list(pairwise((0, *ctx.levels.ends)))):
            part, rows = slice(begin, end), ctx.levels.children[begin:end].flatten()
            d_children = ctx.step.backward(
                {"gates": d_gates[part]},
                {"h": states.index_select(0, rows).view(-1, 2, size)},
                {},
                {name: value[part] for name, value in kept.items()},
                None,
                {"h": d_states[first + begin : first + end]},
            )["h"].flatten(1)
            d_hidden = d_gates[part] @ gate_weight
            if ctx.keep is not None:
                d_hidden *= ctx.keep[part]
            torch.ops.aten.gelu_backward.grad_input(d_hidden, before[part], grad_input=d_before[part])
            d_children.addmm_(d_before[part], hidden_weight)
            d_states.index_add_(0, rows, d_children.view(-1, size))
        children = states.index_select(0, ctx.levels.children.flatten()).view(-1, 2 * size)
        of_weights = (d_before.t() @ children, d_before.sum(0), d_gates.t() @ hidden, d_gates.sum(0))
        of_norm = ctx.step.learned_gradients(kept, {"h": d_states[first:]})
        return None, None, *without_second_derivative([d_states[:first], *of_weights, *of_norm])
