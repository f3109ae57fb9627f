"""The cell of parser and composition over the nodes of many trees, level by level, with a backward pass by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from treemem.ops.activation import tanh_backward
from treemem.ops.affine import Affine
from treemem.ops.gated_recursive import Levels
from treemem.ops.second_derivative import without_second_derivative
from treemem.ops.tree_lstm import TreeLSTMStepPair


def compose_levels(leaves: torch.Tensor, levels: Levels, cell: Affine) -> torch.Tensor:
    """Return the states ``[h; c]`` of all rows, ``[leaves + inner nodes, 2 * hidden_size]``.

    Args:
        leaves: ``[leaves, 2 * hidden_size]``.
        levels: the inner nodes.
        cell: see :func:`treemem.ops.disjoint_tree_lstm.weights.compose`.
    """
    return _Levels.apply(levels, leaves, *cell)


class _Levels(torch.autograd.Function):
    """``states`` holds the ``c`` that parents read; ``cells`` that of inner nodes before its ``tanh``."""

    @staticmethod
    def forward(
        ctx: Any, levels: Levels, leaves: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        first, size = leaves.shape[0], leaves.shape[1] // 2
        count = len(levels.children)
        states = torch.cat([leaves, leaves.new_empty(count, 2 * size)])
        gates, cells = leaves.new_empty(count, 5 * size), leaves.new_empty(count, size)
        step = TreeLSTMStepPair(2, size)
        for begin, end in pairwise((0, *levels.ends)):
            part = slice(begin, end)
            children = states.index_select(0, levels.children[part].flatten()).view(-1, 2, 2, size)
            torch.addmm(bias, children[:, :, 0].reshape(-1, 2 * size), weight.t(), out=gates[part])
            hidden, bounded = states[first + begin : first + end].split(size, 1)
            out = {"h": hidden, "c": cells[part]}
            step.forward({"gates": gates[part]}, {"c": children[:, :, 1]}, out, None)  # type: ignore[arg-type]
            torch.tanh(cells[part], out=bounded)
        ctx.levels = levels
        ctx.save_for_backward(states, gates, cells, weight)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, gates, cells, weight = (each.detach() for each in ctx.saved_tensors)
        size, first = cells.shape[1], len(states) - len(cells)
        d_states, d_gates = gradients[0].clone(), gates.clone()
        step = TreeLSTMStepPair(2, size)
        for begin, end in reversed(list(pairwise((0, *ctx.levels.ends)))):
            part, rows = slice(begin, end), ctx.levels.children[begin:end].flatten()
            d_hidden, d_bounded = d_states[first + begin : first + end].split(size, 1)
            bounded = states[first + begin : first + end, size:]
            d_cells = step.backward(
                {"gates": d_gates[part]},
                {"c": states.index_select(0, rows)[:, size:].view(-1, 2, size)},  # type: ignore[arg-type]
                {"c": cells[part]},
                {},
                None,
                {"h": d_hidden, "c": tanh_backward(d_bounded, bounded, d_bounded)},
            )["c"]
            d_children = torch.cat([(d_gates[part] @ weight).view(-1, 2, size), d_cells], 2)
            d_states.index_add_(0, rows, d_children.flatten(0, 1))
        hidden = states.index_select(0, ctx.levels.children.flatten())[:, :size].reshape(-1, 2 * size)
        return None, *without_second_derivative([d_states[:first], d_gates.t() @ hidden, d_gates.sum(0)])
