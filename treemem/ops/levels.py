"""The fast path of split cells: one product a level and kind, one step a level and arity, one function for autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import dropout

from treemem.ops.cell import LearnedStepPair, SplitCell, State, leaf_states
from treemem.ops.level_plan import LevelPlan, cut, cut_backwards, level_plan
from treemem.ops.level_product import LevelProduct
from treemem.ops.once import differentiable_once
from treemem.ops.reading import Shapes
from treemem.schedule.schedule import Schedule

_FEW = 3  # rows that are added faster one by one, which chains are made of
Weights = dict[str, tuple[torch.Tensor, torch.Tensor]]


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
    plan = level_plan(schedule)
    leaves = leaf_states(cell, leaf_inputs, plan.leaf_segments)
    if not plan.groups:
        return leaves
    weights = cell.weights()
    flat = [tensor for pair in weights.values() for tensor in pair]
    run = LevelRun(cell, schedule, plan, leaves, weights)
    inputs = [*leaves.values(), *flat] + ([] if inner_inputs is None else [inner_inputs])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        buffers = _Levels.apply(run, inner_inputs, *leaves.values(), *flat)
        return dict(zip(leaves, buffers, strict=True))
    with torch.autocast(leaf_inputs.device.type, enabled=False):
        return run.forward(leaves, weights, inner_inputs, None)


class Kept:
    """What a forward pass keeps for its backward pass.

    Attributes:
        products: by arity and name of the product, ``[rows of the arity * copies, outputs]``.
        rows: what step pairs keep, by arity and name, ``[rows of the arity, ...]``.
        masks: by arity and name of the product, what the inputs of each group were multiplied with, for dropout.
        memos: what step pairs returned, one for each group.
    """

    def __init__(self) -> None:
        self.products: dict[tuple[int, str], torch.Tensor] = {}
        self.rows: dict[tuple[int, str], torch.Tensor] = {}
        self.masks: dict[tuple[int, str], list[torch.Tensor]] = {}
        self.memos: list[Any] = []


class LevelRun:
    """One run of a split cell over the groups of a plan.

    Args:
        cell: the cell.
        schedule, plan: the rows and how they are grouped.
        leaves: the states of the leaf rows.
        weights: the cell's stacked weights and biases.
    """

    def __init__(self, cell: SplitCell, schedule: Schedule, plan: LevelPlan, leaves: State, weights: Weights) -> None:
        device = schedule.child.device.type
        self.shortened = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        self.child = schedule.child
        self.num_rows = schedule.num_rows
        self.plan = plan
        self.state_names = tuple(leaves)
        self.weight_keys = tuple(weights)
        self.shapes: Shapes = {name: tuple(value.shape[1:]) for name, value in leaves.items()}
        self.products = {arity: cell.products(arity) for arity in plan.rows_of_arity}
        self.pairs = {arity: cell.step_pair(arity) for arity in plan.rows_of_arity}
        self.gathered = {
            arity: tuple(dict.fromkeys([*self.pairs[arity].reads, *_states_read(products)]))
            for arity, products in self.products.items()
        }

    def forward(self, leaves: State, weights: Weights, x: torch.Tensor | None, kept: Kept | None) -> State:
        """The states of all rows, ``[rows, ...]``; without ``kept`` nothing but them is stored."""
        num_leaves, sizes = self.plan.num_leaves, self.plan.sizes()
        buffers = {name: value.new_empty(self.num_rows, *value.shape[1:]) for name, value in leaves.items()}
        for name, value in leaves.items():
            buffers[name][:num_leaves] = value
        products = self._level_products(weights)
        product_rows = self._product_rows(products, next(iter(leaves.values())), kept)
        kept_rows = self._kept_rows(next(iter(leaves.values())), kept)
        out_rows = {name: cut(value[num_leaves:], sizes) for name, value in buffers.items()}
        child_rows = cut(self.child, self.plan.child_sizes())
        x_rows = _nothing() if x is None else cut(x, sizes)
        for group in self.plan.groups:
            arity = group.arity
            child, own_x = next(child_rows), next(x_rows)
            children = self._children(buffers, self.gathered[arity], child, arity)
            results: State = {}
            for level_product in products[arity]:
                name = level_product.product.name
                inputs = level_product.inputs(children, own_x, results)
                if level_product.product.dropout:
                    mask = dropout(torch.ones_like(inputs), level_product.product.dropout)
                    inputs = inputs * mask
                    if kept is not None:
                        kept.masks.setdefault((arity, name), []).append(mask)
                results[name] = next(product_rows[arity, name])
                level_product.forward(group, inputs, results[name])
            memo = self.pairs[arity].forward(
                results,
                {name: children[name] for name in self.pairs[arity].reads},
                {name: next(rows) for name, rows in out_rows.items()},
                None if kept is None else {name: next(kept_rows[arity, name]) for name in self.pairs[arity].kept},
            )
            if kept is not None:
                kept.memos.append(memo)
        return buffers

    def backward(
        self, kept: Kept, buffers: State, weights: Weights, x: torch.Tensor | None, gradients: State
    ) -> tuple[dict[tuple[int, str], torch.Tensor], torch.Tensor | None]:
        """The sweep from the roots to the leaves.

        Args:
            kept: what the forward pass kept.
            buffers: the states of all rows.
            weights: as in the forward pass.
            x: the features of inner rows, or None.
            gradients: of the states, ``[rows, ...]``; completed in place.

        Returns:
            The gradients of the products, shaped as in ``kept``, and of the features.
        """
        num_leaves, sizes = self.plan.num_leaves, self.plan.sizes()
        products = self._level_products(weights)
        product_gradients = {key: torch.empty_like(value) for key, value in kept.products.items()}
        x_gradient = torch.zeros_like(x) if x is not None else None
        result_rows = self._rows_backwards(kept.products, products)
        gradient_rows = self._rows_backwards(product_gradients, products)
        kept_rows = {key: cut_backwards(value, self.plan.sizes(key[0])) for key, value in kept.rows.items()}
        masks = {key: reversed(value) for key, value in kept.masks.items()}
        own_rows = {name: cut_backwards(value[num_leaves:], sizes) for name, value in gradients.items()}
        child_rows = cut_backwards(self.child, self.plan.child_sizes())
        x_rows = _nothing() if x_gradient is None else cut_backwards(x_gradient, sizes)
        for group, memo in zip(reversed(self.plan.groups), reversed(kept.memos), strict=True):
            arity, pair = group.arity, self.pairs[group.arity]
            child, own_x = next(child_rows), next(x_rows)
            names = [each.product.name for each in products[arity]]
            own_gradients = {name: next(gradient_rows[arity, name]) for name in names}
            results = {name: next(result_rows[arity, name]) for name in names}
            children_gradient = pair.backward(
                results,
                self._children(buffers, pair.reads, child, arity),
                {name: next(kept_rows[arity, name]) for name in pair.kept},
                memo,
                {name: next(rows) for name, rows in own_rows.items()},
                own_gradients,
            )
            for each in reversed(products[arity]):
                name = each.product.name
                inputs_gradient = each.backward(group, own_gradients[name])
                if each.product.dropout:
                    inputs_gradient.mul_(next(masks[arity, name]))
                each.spread(inputs_gradient, self.shapes, children_gradient, own_x, results, own_gradients)
            for name, value in children_gradient.items():
                _add_rows(gradients[name], child, value.reshape(-1, *self.shapes[name]))
        return product_gradients, x_gradient

    def weight_gradients(
        self,
        kept: Kept,
        product_gradients: dict[tuple[int, str], torch.Tensor],
        gradients: State,
        buffers: State,
        weights: Weights,
        x: torch.Tensor | None,
    ) -> list[torch.Tensor]:
        """The gradients of the weights and biases, and of what steps learn, in the order of ``weights``.

        Args:
            kept, buffers, weights, x: as for :meth:`backward`.
            product_gradients: what it returned.
            gradients: of the states, as it left them.
        """
        found = {key: (torch.zeros_like(weight), torch.zeros_like(bias)) for key, (weight, bias) in weights.items()}
        for arity, level_products in self._level_products(weights).items():
            results = {each.product.name: kept.products[arity, each.product.name] for each in level_products}
            for each in level_products:
                key = arity, each.product.name
                mask = torch.cat(kept.masks[key]) if key in kept.masks else None
                totals = found[each.product.weights]
                each.add_weight_gradients(self.plan, product_gradients[key], buffers, x, results, mask, *totals)
            pair = self.pairs[arity]
            if isinstance(pair, LearnedStepPair):
                (every,) = self.plan.kind_rows(arity, by_kind=False)
                own_gradient = {name: value.index_select(0, every.rows) for name, value in gradients.items()}
                own_kept = {name: kept.rows[arity, name] for name in pair.kept}
                for total, value in zip(
                    found[pair.learned], pair.learned_gradients(own_kept, own_gradient), strict=True
                ):
                    total += value
        return [tensor for pair in found.values() for tensor in pair]

    def _level_products(self, weights: Weights) -> dict[int, list[LevelProduct]]:
        return {
            arity: [LevelProduct(each, arity, *weights[each.weights], self.shortened) for each in products]
            for arity, products in self.products.items()
        }

    def _product_rows(
        self, products: dict[int, list[LevelProduct]], like: torch.Tensor, kept: Kept | None
    ) -> dict[tuple[int, str], Iterator[torch.Tensor]]:
        """Where each group's products go: rows of their own if they are kept, else the same rows again and again."""
        rows = {}
        for arity, level_products in products.items():
            for each in level_products:
                key, sizes = (arity, each.product.name), self.plan.sizes(arity, each.copies)
                if kept is None:
                    rows[key] = _heads(like.new_empty(max(sizes), each.outputs), sizes)
                else:
                    kept.products[key] = like.new_empty(sum(sizes), each.outputs)
                    rows[key] = cut(kept.products[key], sizes)
        return rows

    def _kept_rows(self, like: torch.Tensor, kept: Kept | None) -> dict[tuple[int, str], Iterator[torch.Tensor]]:
        if kept is None:
            return {}
        for arity, pair in self.pairs.items():
            for name, shape in pair.kept.items():
                kept.rows[arity, name] = like.new_empty(self.plan.rows_of_arity[arity], *shape)
        return {key: cut(value, self.plan.sizes(key[0])) for key, value in kept.rows.items()}

    def _rows_backwards(
        self, values: dict[tuple[int, str], torch.Tensor], products: dict[int, list[LevelProduct]]
    ) -> dict[tuple[int, str], Iterator[torch.Tensor]]:
        copies = {(arity, each.product.name): each.copies for arity, these in products.items() for each in these}
        return {key: cut_backwards(value, self.plan.sizes(key[0], copies[key])) for key, value in values.items()}

    def _children(self, buffers: State, names: tuple[str, ...], child: torch.Tensor, arity: int) -> State:
        return {name: buffers[name].index_select(0, child).view(-1, arity, *self.shapes[name]) for name in names}


class _Levels(torch.autograd.Function):
    """A :class:`LevelRun` as one node of the autograd graph: ``(run, x, *leaf states, *weights and biases)``."""

    @staticmethod
    def forward(ctx: Any, run: LevelRun, x: torch.Tensor | None, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        num_states = len(run.state_names)
        leaves = dict(zip(run.state_names, tensors[:num_states], strict=True))
        weights = _weights(run, tensors[num_states:])
        kept = Kept()
        with torch.autocast(tensors[0].device.type, enabled=False):
            buffers = run.forward(leaves, weights, x, kept)
        ctx.run = run
        ctx.memos, ctx.masks = kept.memos, kept.masks
        ctx.has_x = x is not None
        ctx.product_keys, ctx.row_keys = tuple(kept.products), tuple(kept.rows)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            *buffers.values(),
            *kept.products.values(),
            *kept.rows.values(),
            *tensors[num_states:],
            *([] if x is None else [x]),
        )
        return tuple(buffers.values())

    @staticmethod
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        run: LevelRun = ctx.run
        num_states = len(run.state_names)
        saved = iter(ctx.saved_tensors)
        buffers = {name: next(saved) for name in run.state_names}
        kept = Kept()
        kept.products = {key: next(saved) for key in ctx.product_keys}
        kept.rows = {key: next(saved) for key in ctx.row_keys}
        kept.memos, kept.masks = ctx.memos, ctx.masks
        flat = tuple(next(saved) for _ in range(2 * len(run.weight_keys)))
        x = next(saved) if ctx.has_x else None
        weights = _weights(run, flat)
        _, of_x, *of_tensors = ctx.needs_input_grad
        of_states, of_weights = of_tensors[:num_states], any(of_tensors[num_states:])
        with torch.no_grad(), torch.autocast(flat[0].device.type, enabled=False):
            gradients = {
                name: torch.zeros_like(buffers[name]) if gradient is None else gradient.clone().contiguous()
                for name, gradient in zip(run.state_names, output_gradients, strict=True)
            }
            product_gradients, x_gradient = run.backward(kept, buffers, weights, x, gradients)
            weight_gradients: list[torch.Tensor] | list[None] = [None] * len(flat)
            if of_weights:
                weight_gradients = run.weight_gradients(kept, product_gradients, gradients, buffers, weights, x)
        leaf_gradients = [
            gradient[: run.plan.num_leaves] if wanted else None
            for gradient, wanted in zip(gradients.values(), of_states, strict=True)
        ]
        found = [x_gradient if of_x else None, *leaf_gradients, *weight_gradients]
        return None, *differentiable_once(found)


def _add_rows(total: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Add ``values[i]`` to ``total[rows[i]]``."""
    if len(rows) <= _FEW and rows.device.type == "cpu":  # reading them elsewhere would wait for the device
        for row, value in zip(rows.tolist(), values.unbind(0), strict=True):
            total[row].add_(value)
    else:
        total.index_add_(0, rows, values)


def _weights(run: LevelRun, flat: tuple[torch.Tensor, ...]) -> Weights:
    return dict(zip(run.weight_keys, zip(flat[::2], flat[1::2], strict=True), strict=True))


def _states_read(products: tuple[Any, ...]) -> list[str]:
    return [name for product in products for name in product.reading.states]


def _heads(rows: torch.Tensor, sizes: list[int]) -> Iterator[torch.Tensor]:
    return (rows[:size] for size in sizes)


def _nothing() -> Iterator[None]:
    while True:
        yield None
