"""The gated recursive cell over the nodes of binary trees, level by level, with its backward pass written by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.ops.gated_recursive.cell import CellActivation, GatedCellWeights
from treemem.ops.gated_recursive.fused import GatedRecursiveStepPair
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.native_levels import graph_is_retained
from treemem.ops.second_derivative import without_second_derivative

_SOURCE = Path(__file__).with_name("levels.cpp")
_ROWS_PER_THREAD = 64


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
    given = tensors if keep is None else (*tensors, keep)
    library = native_library(_SOURCE, given, f"REAL={TYPE_NAMES.get(leaves.dtype)}")
    if library is None:
        return _StepByStep.apply(levels, keep, activation, *tensors)
    return _Native.apply(library, levels, keep, activation, *tensors)


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


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        levels: Levels,
        keep: torch.Tensor | None,
        activation: CellActivation,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        leaves, *weights = (each.contiguous() for each in tensors)
        (first, size), count, inner = leaves.shape, len(levels.children), len(weights[0])
        states = empty_rows(leaves, first + count, size)
        states[:first] = leaves
        kept = []
        if any(ctx.needs_input_grad):
            kept = [empty_rows(leaves, count, width) for width in (inner, inner, 4 * size, size + 1)]
        children, ends = levels.children.contiguous(), torch.tensor(levels.ends, dtype=torch.int64)
        keep = None if keep is None else keep.contiguous()
        threads = max(1, min(torch.get_num_threads(), count // _ROWS_PER_THREAD))
        ctx.problem = first, count, len(ends), size, inner, threads, activation == "gelu"
        ctx.library, ctx.ends, ctx.has_mask = library, ends, keep is not None
        ctx.save_for_backward(children, *weights, *([] if keep is None else [keep]), states, *kept)
        library.forward(_Native.structure(ctx, children, weights, keep, states, kept))
        return states

    @staticmethod
    def structure(
        ctx: Any,
        children: torch.Tensor,
        weights: Sequence[torch.Tensor],
        keep: torch.Tensor | None,
        states: torch.Tensor,
        kept: Sequence[torch.Tensor],
    ) -> ctypes.Array[ctypes.c_int64]:
        """Return ``Problem`` of the source."""
        nothing: list[torch.Tensor | None] = [None] * 4
        tensors = (children, ctx.ends, *weights, keep, states, *(kept or nothing))
        return structure(*ctx.problem, *map(address, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        children, *saved = ctx.saved_tensors
        weights, saved = saved[:6], saved[6:]
        keep = saved.pop(0) if ctx.has_mask else None
        states, *kept = saved
        first, threads = ctx.problem[0], ctx.problem[5]
        if graph_is_retained():  # the pass overwrites what was kept
            kept = [each.clone() for each in kept]
        d_states = gradients[0].clone(memory_format=torch.contiguous_format)
        of_maps = [torch.zeros_like(each) for each in weights[:4]]
        learned = states.new_zeros(threads, 2, states.shape[1])
        found = structure(*(each.data_ptr() for each in (d_states, *of_maps, learned)))
        ctx.library.backward(_Native.structure(ctx, children, weights, keep, states, kept), found)
        return None, None, None, None, *without_second_derivative([d_states[:first], *of_maps, *learned.sum(0)])


class _StepByStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        levels: Levels,
        keep: torch.Tensor | None,
        activation: CellActivation,
        leaves: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        hidden_weight, hidden_bias, gate_weight, gate_bias, gain, bias = weights
        first, size = leaves.shape
        count = len(levels.children)
        states = leaves.new_empty(first + count, size)
        states[:first] = leaves
        before, hidden = (leaves.new_empty(count, len(hidden_weight)) for _ in range(2))
        gates = leaves.new_empty(count, 4 * size)
        step = GatedRecursiveStepPair(2, size, gain, bias)
        kept = {name: leaves.new_empty(count, *shape) for name, shape in step.kept.items()}
        for begin, end in pairwise((0, *levels.ends)):
            part = slice(begin, end)
            children = states.index_select(0, levels.children[part].flatten())
            torch.addmm(hidden_bias, children.view(-1, 2 * size), hidden_weight.t(), out=before[part])
            hidden[part] = functional.gelu(before[part]) if activation == "gelu" else functional.relu(before[part])
            if keep is not None:
                hidden[part] *= keep[part]
            torch.addmm(gate_bias, hidden[part], gate_weight.t(), out=gates[part])
            step.forward(
                {"gates": gates[part]},
                {"h": children.view(-1, 2, size)},  # type: ignore[arg-type]
                {"h": states[first + begin : first + end]},
                {name: value[part] for name, value in kept.items()},
            )
        ctx.levels, ctx.keep, ctx.activation, ctx.step, ctx.names = levels, keep, activation, step, list(kept)
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
            if ctx.activation == "gelu":
                torch.ops.aten.gelu_backward.grad_input(d_hidden, before[part], grad_input=d_before[part])
            else:
                d_before[part] = torch.ops.aten.threshold_backward(d_hidden, before[part], 0)
            d_children.addmm_(d_before[part], hidden_weight)
            d_states.index_add_(0, rows, d_children.view(-1, size))
        children = states.index_select(0, ctx.levels.children.flatten()).view(-1, 2 * size)
        of_weights = (d_before.t() @ children, d_before.sum(0), d_gates.t() @ hidden, d_gates.sum(0))
        of_norm = ctx.step.learned_gradients(kept, {"h": d_states[first:]})
        return None, None, None, *without_second_derivative([d_states[:first], *of_weights, *of_norm])
