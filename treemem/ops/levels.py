"""The fast path of split cells: one product a level and kind, one step a level and arity, one function for autograd."""

from __future__ import annotations

import sys
from typing import Any

import torch

from treemem.ops.cell import SplitCell, State, leaf_products, leaf_states
from treemem.ops.level_plan import level_plan
from treemem.ops.level_run import Features, Kept, LevelRun, Weights
from treemem.ops.native_levels import run_native_levels
from treemem.ops.second_derivative import graph_is_retained, once_differentiable, refuse_transforms, save_for_backward
from treemem.ops.state_gradient import StateGradient
from treemem.schedule.schedule import GIVEN, Schedule

_ROWS_AT_ONCE = 512  # of a level on a CPU; larger steps leave its caches, smaller ones cost more calls


def run_levels(
    cell: SplitCell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None
) -> State:
    """The states of all rows, level by level.

    Args:
        cell: a cell with the split form.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[rows, ...]``, differentiable once.
    """
    refuse_transforms()
    runs_leaves = bool(leaf_products(cell))
    without_step = [each for each in schedule.leaf_segments if not runs_leaves or each.kind == GIVEN]
    leaves = leaf_states(cell, leaf_inputs, [each[:3] for each in without_step])
    if len(schedule.levels) < 2 and len(without_step) == len(schedule.leaf_segments):
        return leaves
    weights = cell.weights()
    flat = [tensor for pair in weights.values() for tensor in pair]
    features = Features(leaf_inputs if len(without_step) < len(schedule.leaf_segments) else None, inner_inputs)
    native = run_native_levels(cell, schedule, leaves, weights, features)
    if native is not None:
        return native
    rows_at_once = _ROWS_AT_ONCE if schedule.device.type == "cpu" else sys.maxsize
    plan = level_plan(schedule, rows_at_once, runs_leaves)
    inputs = [tensor for tensor in (*leaves.values(), *features, *flat) if tensor is not None]
    train = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    run = LevelRun(cell, schedule, plan, leaves, weights)
    if train:
        buffers = _Levels.apply(run, *features, *leaves.values(), *flat)
        return dict(zip(leaves, buffers, strict=True))
    with torch.no_grad(), torch.autocast(schedule.device.type, enabled=False):
        return run.forward(leaves, weights, features, None)


class _Levels(torch.autograd.Function):
    """A :class:`LevelRun` as a node of the autograd graph: ``(run, *features, *leaf states, *weights and biases)``."""

    @staticmethod
    def forward(
        ctx: Any, run: LevelRun, of_leaves: torch.Tensor | None, of_inner: torch.Tensor | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        num_states = len(run.state_names)
        leaves = dict(zip(run.state_names, tensors[:num_states], strict=True))
        weights = _weights(run, tensors[num_states:])
        kept = Kept()
        with torch.autocast(tensors[0].device.type, enabled=False):
            buffers = run.forward(leaves, weights, Features(of_leaves, of_inner), kept)
        ctx.run = run
        ctx.memos, ctx.masks, ctx.feature_masks = kept.memos, kept.masks, kept.feature_masks
        ctx.num_given = len(tensors[0])
        ctx.product_keys, ctx.row_keys = tuple(kept.products), tuple(kept.rows)
        ctx.set_materialize_grads(False)
        save_for_backward(
            ctx,
            of_leaves,
            of_inner,
            *buffers.values(),
            *kept.products.values(),
            *kept.rows.values(),
            *tensors[num_states:],
        )
        return tuple(buffers.values())

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, tensors: tuple[Any, ...], *output_gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        run: LevelRun = ctx.run
        num_states = len(run.state_names)
        saved = iter(tensors)
        features = Features(next(saved), next(saved))

        def rows() -> torch.Tensor:
            return next(saved).contiguous()

        buffers = {name: rows() for name in run.state_names}
        products, kept_rows = ({key: rows() for key in keys} for keys in (ctx.product_keys, ctx.row_keys))
        kept = Kept(products, kept_rows, ctx.masks, ctx.feature_masks, ctx.memos)
        if graph_is_retained():
            kept.products = {key: value.clone() for key, value in kept.products.items()}
        else:
            ctx.memos = ctx.masks = ctx.feature_masks = None  # which would stay as long as any state does
        flat = tuple(tensor.to(run.dtype) for tensor in saved)
        weights = _weights(run, flat)
        wanted = ctx.needs_input_grad[1:]
        of_features, of_states, of_weights = wanted[:2], wanted[2 : 2 + num_states], any(wanted[2 + num_states :])
        with torch.autocast(flat[0].device.type, enabled=False):
            gradients = {
                name: StateGradient(buffers[name], gradient, run.plan.num_leaves, of_leaves or 0 in run.pairs)
                for name, gradient, of_leaves in zip(run.state_names, output_gradients, of_states, strict=True)
            }
            product_gradients = run.backward(kept, buffers, weights, features, gradients)
            weight_gradients: list[torch.Tensor] | list[None] = [None] * len(flat)
            if of_weights:
                weight_gradients = run.weight_gradients(kept, product_gradients, gradients, buffers, weights, features)
            asked = Features(*(x if is_wanted else None for x, is_wanted in zip(features, of_features, strict=True)))
            feature_gradients = run.feature_gradients(kept, product_gradients, weights, features, asked)
        last = run.plan.num_leaves
        leaf_gradients = [
            gradient.of_rows(slice(last - ctx.num_given, last)) if is_wanted else None
            for gradient, is_wanted in zip(gradients.values(), of_states, strict=True)
        ]
        return None, *feature_gradients, *leaf_gradients, *weight_gradients


def _weights(run: LevelRun, flat: tuple[torch.Tensor, ...]) -> Weights:
    return dict(zip(run.weight_keys, zip(flat[::2], flat[1::2], strict=True), strict=True))
