"""The gated recursive cell of many pairs at once, with its backward pass written by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from treemem.ops.gated_recursive.cell import CellActivation, GatedCellWeights
from treemem.ops.gated_recursive.fused import GatedRecursiveStepPair
from treemem.ops.second_derivative import without_second_derivative


def gated_pairs(
    left: torch.Tensor,
    right: torch.Tensor,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over pairs ``[pairs, hidden_size]``; arguments as there."""
    return _GatedPairs.apply(activation, keep, left, right, *weights.hidden, *weights.gates, *weights.norm)


class _GatedPairs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        activation: CellActivation,
        keep: torch.Tensor | None,
        left: torch.Tensor,
        right: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        hidden_weight, hidden_bias, gate_weight, gate_bias, gain, bias = weights
        count, size = left.shape
        children = torch.cat([left, right], 1)
        before = torch.addmm(hidden_bias, children, hidden_weight.t())
        hidden = functional.gelu(before) if activation == "gelu" else functional.relu(before)
        if keep is not None:
            hidden *= keep
        gates = torch.addmm(gate_bias, hidden, gate_weight.t())
        step = GatedRecursiveStepPair(2, size, gain, bias)
        kept = {name: left.new_empty(count, *shape) for name, shape in step.kept.items()}
        out = torch.empty_like(left)
        step.forward({"gates": gates}, {"h": children.view(-1, 2, size)}, {"h": out}, kept)  # type: ignore[arg-type]
        ctx.activation, ctx.keep, ctx.step, ctx.names = activation, keep, step, list(kept)
        ctx.save_for_backward(hidden_weight, gate_weight, children, before, hidden, gates, *kept.values())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_weight, gate_weight, children, before, hidden, gates, *saved = ctx.saved_tensors
        kept = dict(zip(ctx.names, saved, strict=True))
        size = children.shape[1] // 2
        d_out, d_gates = gradients[0].contiguous(), gates.clone()
        of_children = {"h": children.view(-1, 2, size)}
        d_children = ctx.step.backward({"gates": d_gates}, of_children, {}, kept, None, {"h": d_out})["h"].flatten(1)
        d_hidden = d_gates @ gate_weight
        if ctx.keep is not None:
            d_hidden *= ctx.keep
        if ctx.activation == "gelu":
            d_before = torch.ops.aten.gelu_backward(d_hidden, before)
        else:
            d_before = torch.ops.aten.threshold_backward(d_hidden, before, 0)
        d_children.addmm_(d_before, hidden_weight)
        of_weights = (d_before.t() @ children, d_before.sum(0), d_gates.t() @ hidden, d_gates.sum(0))
        of_norm = ctx.step.learned_gradients(kept, {"h": d_out})
        return None, None, *without_second_derivative([*d_children.split(size, 1), *of_weights, *of_norm])
