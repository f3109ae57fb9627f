"""One run of a split cell over the levels of a schedule, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.nn.functional import dropout

from treemem.ops.cell import LearnedStepPair, SplitCell, State, leaf_products
from treemem.ops.children import Children
from treemem.ops.large_pages import empty_rows
from treemem.ops.level_plan import LevelPlan, cut, cut_backwards
from treemem.ops.level_product import LevelProduct
from treemem.ops.product_input import HiddenLayer, Shapes
from treemem.ops.state_gradient import StateGradient
from treemem.schedule.schedule import Schedule

Weights = dict[str, tuple[torch.Tensor, torch.Tensor]]
Key = tuple[int, str]
"""An arity, and the name of a product or of what a step pair keeps."""


class Features(NamedTuple):
    """What rows read of their own, in row order.

    Attributes:
        leaves: ``[leaf rows, input_size]``, or None.
        inner: ``[inner rows, input_size]``, or None.
    """

    leaves: torch.Tensor | None
    inner: torch.Tensor | None

    def of(self, arity: int) -> torch.Tensor | None:
        """Those of the leaves for the arity 0, else those of the inner rows."""
        return self.inner if arity else self.leaves


@dataclass
class Kept:
    """What a forward pass keeps for its backward pass, which turns the products into their gradients.

    Attributes:
        products: by arity and name of the product, ``[rows of the arity * copies, outputs]``.
        rows: what step pairs keep, by arity and name, ``[rows of the arity, ...]``.
        masks: by arity and name of the product, what the inputs of each group were multiplied with, for dropout.
        feature_masks: by the same, what the features of all rows were multiplied with.
        memos: what step pairs returned, one for each group.
    """

    products: dict[Key, torch.Tensor] = field(default_factory=dict)
    rows: dict[Key, torch.Tensor] = field(default_factory=dict)
    masks: dict[Key, list[torch.Tensor]] = field(default_factory=dict)
    feature_masks: dict[Key, torch.Tensor] = field(default_factory=dict)
    memos: list[Any] = field(default_factory=list)


class LevelRun:
    """One run of a split cell over the groups of a plan.

    Args:
        cell: the cell.
        schedule, plan: the rows and how they are grouped.
        leaves: the states of the leaf rows that are in no group.
        weights: the cell's stacked weights and biases.
    """

    def __init__(self, cell: SplitCell, schedule: Schedule, plan: LevelPlan, leaves: State, weights: Weights) -> None:
        device = schedule.device.type
        like = next(iter(leaves.values()))
        autocast = torch.is_autocast_enabled(device) and like.dtype != torch.float64
        self.shortened = torch.get_autocast_dtype(device) if autocast else None
        self.dtype = like.dtype
        self.child = schedule.child
        self.num_rows = schedule.num_rows
        self.plan = plan
        self.state_names = tuple(leaves)
        self.weight_keys = tuple(weights)
        self.shapes: Shapes = {name: tuple(value.shape[1:]) for name, value in leaves.items()}
        self.products = {arity: cell.products(arity) if arity else leaf_products(cell) for arity in plan.rows_of_arity}
        self.hidden_layers = {
            (arity, each.source.product)
            for arity, products in self.products.items()
            for each in products
            if isinstance(each.source, HiddenLayer)
        }
        self.pairs = {arity: cell.step_pair(arity) for arity in plan.rows_of_arity}

    def forward(self, leaves: State, weights: Weights, features: Features, kept: Kept | None) -> State:
        """The states of all rows, ``[rows, ...]``; fills ``kept`` for the backward pass, if there is one.

        The leaf rows that are in no group, whose states are ``leaves``, come last among the leaf rows.
        """
        last = self.plan.num_leaves
        buffers = {name: empty_rows(value, self.num_rows, *value.shape[1:]) for name, value in leaves.items()}
        for name, value in leaves.items():
            buffers[name][last - len(value) : last] = value
        like = next(iter(leaves.values()))
        products = self._level_products(weights, features)
        product_rows = self._product_rows(products, like, features, kept)
        kept_rows = self._kept_rows(like, kept)
        out_rows = {name: self.plan.rows_of_groups(value) for name, value in buffers.items()}
        child_rows = cut(self.child, self.plan.child_sizes())
        for group in self.plan.groups:
            arity, pair = group.arity, self.pairs[group.arity]
            children = Children(buffers, next(child_rows).view(group.end - group.begin, arity))
            results: State = {}
            for each in products[arity]:
                name = each.product.name
                inputs = each.inputs(children, results)
                if each.product.dropout:
                    mask = dropout(torch.ones_like(inputs), each.product.dropout)
                    inputs = inputs * mask
                    if kept is not None:
                        kept.masks.setdefault((arity, name), []).append(mask)
                results[name] = next(product_rows[arity, name])
                each.forward(group, inputs, results[name])
            memo = pair.forward(
                self._read_by_step(arity, results),
                children,
                {name: next(rows) for name, rows in out_rows.items()},
                None if kept is None else {name: next(kept_rows[arity, name]) for name in pair.kept},
            )
            if kept is not None:
                kept.memos.append(memo)
        return buffers

    def backward(
        self,
        kept: Kept,
        buffers: State,
        weights: Weights,
        features: Features,
        gradients: dict[str, StateGradient],
    ) -> dict[Key, torch.Tensor]:
        """Return the gradients of the products, shaped as in ``kept``, from the roots to the leaves.

        Overwrites the products in ``kept`` and completes the ``gradients`` of the states; ``buffers`` are the states.
        """
        products = self._level_products(weights, features)
        hidden_gradients = {key: torch.empty_like(kept.products[key]) for key in self.hidden_layers}
        product_gradients = kept.products | hidden_gradients
        result_rows = self._rows_backwards(kept.products, products)
        gradient_rows = self._rows_backwards(product_gradients, products)
        kept_rows = {key: cut_backwards(value, self.plan.sizes(key[0])) for key, value in kept.rows.items()}
        masks = {key: reversed(value) for key, value in kept.masks.items()}
        state_rows = {name: self.plan.rows_of_groups_backwards(value) for name, value in buffers.items()}
        own_rows = {name: self.plan.rows_of_groups_backwards(value.values) for name, value in gradients.items()}
        child_rows = cut_backwards(self.child, self.plan.child_sizes())
        places = {
            name: cut_backwards(gradient.places(self.child), self.plan.child_sizes())
            for name, gradient in gradients.items()
        }
        for group, memo in zip(reversed(self.plan.groups), reversed(kept.memos), strict=True):
            arity, pair = group.arity, self.pairs[group.arity]
            names = [each.product.name for each in products[arity]]
            own_gradients = {name: next(gradient_rows[arity, name]) for name in names}
            results = {name: next(result_rows[arity, name]) for name in names}
            children_gradient = pair.backward(
                self._read_by_step(arity, results),
                Children(buffers, next(child_rows).view(group.end - group.begin, arity)),
                {name: next(rows) for name, rows in state_rows.items()},
                {name: next(kept_rows[arity, name]) for name in pair.kept},
                memo,
                {name: next(rows) for name, rows in own_rows.items()},
            )
            for each in reversed(products[arity]):
                name = each.product.name
                inputs_gradient = each.backward(group, own_gradients[name])
                if each.product.dropout:
                    inputs_gradient.mul_(next(masks[arity, name]))
                each.spread(inputs_gradient, self.shapes, children_gradient, results, own_gradients)
            for name, rows in places.items():
                own_places = next(rows)
                if arity and name in children_gradient:
                    gradients[name].add(own_places, children_gradient[name].reshape(-1, *self.shapes[name]))
        return product_gradients

    def weight_gradients(
        self,
        kept: Kept,
        product_gradients: dict[Key, torch.Tensor],
        gradients: dict[str, StateGradient],
        buffers: State,
        weights: Weights,
        features: Features,
    ) -> list[torch.Tensor]:
        """Return the gradients of the weights and biases, and of what steps learn, in the order of ``weights``.

        ``product_gradients`` and ``gradients`` are as :meth:`backward` returned and left them.
        """
        found = {key: (torch.zeros_like(weight), torch.zeros_like(bias)) for key, (weight, bias) in weights.items()}
        for arity, level_products in self._level_products(weights, features).items():
            results = {each.product.name: kept.products[arity, each.product.name] for each in level_products}
            for each in level_products:
                key = arity, each.product.name
                mask = torch.cat(kept.masks[key]) if key in kept.masks else None
                own = features.of(arity) if each.reads_features else None
                if own is not None and key in kept.feature_masks:
                    own = own * kept.feature_masks[key]
                totals = found[each.product.weights]
                each.add_weight_gradients(self.plan, product_gradients[key], buffers, own, results, mask, *totals)
            pair = self.pairs[arity]
            if isinstance(pair, LearnedStepPair):
                (every,) = self.plan.kind_rows(arity, by_kind=False)
                own_gradient = {name: value.of_rows(every.rows) for name, value in gradients.items()}
                own_kept = {name: kept.rows[arity, name] for name in pair.kept}
                for total, value in zip(
                    found[pair.learned], pair.learned_gradients(own_kept, own_gradient), strict=True
                ):
                    total += value
        return [tensor for pair in found.values() for tensor in pair]

    def feature_gradients(
        self,
        kept: Kept,
        product_gradients: dict[Key, torch.Tensor],
        weights: Weights,
        features: Features,
        wanted: Features,
    ) -> Features:
        """Return the gradients of the features that are not None in ``wanted``."""
        found = Features(*(None if x is None else torch.zeros_like(x) for x in wanted))
        for arity, level_products in self._level_products(weights, features).items():
            total = found.of(arity)
            for each in level_products:
                if total is None or not each.reads_features:
                    continue
                key = arity, each.product.name
                if key in kept.feature_masks:
                    own = torch.zeros_like(total)
                    each.add_features_gradient(self.plan, product_gradients[key], own)
                    total.addcmul_(own, kept.feature_masks[key])
                else:
                    each.add_features_gradient(self.plan, product_gradients[key], total)
        return found

    def _read_by_step(self, arity: int, results: State) -> State:
        return {name: value for name, value in results.items() if (arity, name) not in self.hidden_layers}

    def _level_products(self, weights: Weights, features: Features) -> dict[int, list[LevelProduct]]:
        return {
            arity: [
                LevelProduct(each, arity, *weights[each.weights], _width(features.of(arity)), self.shortened)
                for each in products
            ]
            for arity, products in self.products.items()
        }

    def _product_rows(
        self, products: dict[int, list[LevelProduct]], like: torch.Tensor, features: Features, kept: Kept | None
    ) -> dict[Key, Iterator[torch.Tensor]]:
        """Where the products of each group go.

        They have rows of their own if they are kept or hold the part of the features already; else each group has the
        same rows as the one before.
        """
        rows = {}
        for arity, level_products in products.items():
            for each in level_products:
                key, sizes = (arity, each.product.name), self.plan.sizes(arity, each.copies)
                x = features.of(arity) if each.reads_features else None
                if kept is None and x is None:
                    rows[key] = _heads(like.new_empty(max(sizes), each.outputs), sizes)
                    continue
                values = empty_rows(like, sum(sizes), each.outputs)
                if x is not None and each.product.dropout:
                    mask = dropout(torch.ones_like(x), each.product.dropout)
                    x = x * mask
                    if kept is not None:
                        kept.feature_masks[key] = mask
                if x is not None:
                    each.add_features(self.plan, x, values)
                if kept is not None:
                    kept.products[key] = values
                rows[key] = cut(values, sizes)
        return rows

    def _kept_rows(self, like: torch.Tensor, kept: Kept | None) -> dict[Key, Iterator[torch.Tensor]]:
        if kept is None:
            return {}
        for arity, pair in self.pairs.items():
            for name, shape in pair.kept.items():
                kept.rows[arity, name] = empty_rows(like, self.plan.rows_of_arity[arity], *shape)
        return {key: cut(value, self.plan.sizes(key[0])) for key, value in kept.rows.items()}

    def _rows_backwards(
        self, values: dict[Key, torch.Tensor], products: dict[int, list[LevelProduct]]
    ) -> dict[Key, Iterator[torch.Tensor]]:
        copies = {(arity, each.product.name): each.copies for arity, these in products.items() for each in these}
        return {key: cut_backwards(value, self.plan.sizes(key[0], copies[key])) for key, value in values.items()}


def _width(features: torch.Tensor | None) -> int:
    return 0 if features is None else features.shape[1]


def _heads(rows: torch.Tensor, sizes: list[int]) -> Iterator[torch.Tensor]:
    return (rows[:size] for size in sizes)
