"""Cells over trees on CUDA, as one operation: one launch of a printed kernel a level, forwards and backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from treemem.engines.cell import Cell, Features, State, feature_rows, leaf_states
from treemem.engines.cuda.launcher import launcher, printed_kernels, product_precision
from treemem.engines.cuda.plan import COLUMNS, Layout, Plan, ProductLayout, plan_of
from treemem.engines.cuda.trees_in_bucket import BucketSchedule
from treemem.engines.formulas import (
    Formula,
    Weights,
    kinds_by_arity,
    not_printed,
    printable_module,
    printed_formulas,
    width_of,
)
from treemem.engines.level_library import NotNative
from treemem.engines.printer.compiled_formula import PrintedCell, parameter_of
from treemem.engines.printer.symbolic import StepError
from treemem.engines.printer.triton import triton_source
from treemem.engines.printer.triton_layout import WIDEST, Tiling, block_of, tiling_of
from treemem.native.run import NativeRun, Tensors
from treemem.native.run import run_native as run_under_autograd
from treemem.schedule.schedule import Schedule

_ALL_REGISTERS = {"maxnreg": 255}
"""An option of the compiler; by itself the assembler uses fewer registers than it may, and spills."""
_MOST_CHILDREN = 16  # of a node; a kernel is compiled for each number of children


def run_cuda(cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: Features) -> State:
    """The states of all rows, level by level, in Triton kernels that are compiled at first use.

    Args:
        cell: a cell whose step can be printed.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, vectors by label, or None.

    Returns:
        Each state as ``[rows, ...]``, differentiable once.

    Raises:
        NotNative: the cell has no step that can be printed, or the kernels do not run here.
    """
    module = printable_module(cell)
    _check([leaf_inputs, *module.parameters()])
    leaves = leaf_states(cell, leaf_inputs, [segment[:3] for segment in schedule.leaf_segments])
    if len(schedule.levels) < 2:
        return leaves
    _check(list(leaves.values()))
    kinds = kinds_by_arity(schedule)
    if max(kinds) > _MOST_CHILDREN:
        raise NotNative(f"a node has {max(kinds)} children; its kernels are printed for up to {_MOST_CHILDREN}")
    shapes = {name: tuple(value.shape[1:]) for name, value in leaves.items()}
    formulas, weights = printed_formulas(module, kinds, shapes, (None, width_of(inner_inputs)))
    D, widths = next(iter(shapes.values()))[-1], tuple(int(np.prod(shape)) for shape in shapes.values())
    if D > WIDEST:
        raise NotNative(f"its kernels take states of up to {WIDEST} numbers, and those of this layer have {D}")
    printed = tuple((arity, formula.printed) for arity, formula in formulas.items())
    tiling = tiling_of(dict(printed), D, leaf_inputs.element_size())
    try:
        text = _kernel_text(printed, widths, D, tiling)
    except StepError as error:
        raise not_printed(module, error) from None
    names = list(chain.from_iterable(formula.printed.learned for formula in formulas.values()))
    features = feature_rows(inner_inputs)
    maps = [tensor.flatten() for pair in weights.values() for tensor in pair]
    flat = torch.cat(maps) if maps else leaf_inputs.new_empty(0)
    learned = torch.cat([parameter_of(module, name).flatten() for name in names]) if names else None
    tensors = _Tensors(flat, learned, features, list(leaves.values()))
    _check([tensor for tensor in tensors.flat() if tensor is not None])
    run = _Run(printed, text, schedule, _layout(formulas, weights, tiling), widths, not tiling.fused)
    run.train = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors.flat())
    return dict(zip(leaves, run_under_autograd(run, *tensors.flat()), strict=True))


def _check(tensors: Sequence[torch.Tensor]) -> None:
    reason = launcher().why_not(tensors)
    if reason is not None:
        raise NotNative(reason)


@cache
def _kernel_text(printed: tuple[tuple[int, PrintedCell], ...], widths: tuple[int, ...], D: int, tiling: Tiling) -> str:
    return triton_source(dict(printed), widths, D, tiling)


def _layout(formulas: Mapping[int, Formula], weights: Weights, tiling: Tiling) -> Layout:
    """How the rows lie in memory, and all weights and biases one after the other."""
    begins, total = {}, 0
    for key, (weight, bias) in weights.items():
        begins[key] = total, total + weight.numel()
        total += weight.numel() + bias.numel()
    products = []
    for arity, formula in formulas.items():
        of_arity = []
        for product, (key, sets) in zip(formula.printed.products, formula.weights, strict=True):
            _, outputs, inputs = weights[key][0].shape
            pairs = None if sets is None else tuple(sets.items())
            of_arity.append(ProductLayout(product.copies, outputs, inputs, pairs, *begins[key]))
        products.append((arity, tuple(of_arity)))
    factors = tuple((arity, _num_factors(formula.printed)) for arity, formula in formulas.items())
    return Layout(tuple(products), factors, total, tiling.rows)


def _num_factors(printed: PrintedCell) -> int:
    return sum(width for _, width in printed.dropouts)


class _Tensors(NamedTuple):
    """What a run reads, or its gradients: weights with biases, other parameters, features of inner rows, leaves."""

    weights: Any
    learned: Any
    features: Any
    leaves: Sequence[Any]

    def flat(self) -> list[Any]:
        return [*self[:3], *self.leaves]

    @classmethod
    def of(cls, flat: Sequence[Any]) -> _Tensors:
        return cls(flat[0], flat[1], flat[2], flat[3:])


class _Run(NativeRun):
    """One run, from its forward to its backward pass.

    Args:
        printed: formulas by arity.
        text: of the kernels.
        schedule: the rows.
        layout: of the rows.
        widths: of the states.
        is_wide: whether a product leaves its results in memory for the step.

    Attributes:
        train: whether there will be a backward pass.
    """

    refusal = None

    def __init__(
        self,
        printed: Sequence[tuple[int, PrintedCell]],
        text: str,
        schedule: Schedule,
        layout: Layout,
        widths: tuple[int, ...],
        is_wide: bool,
    ) -> None:
        self.train, self._is_wide = False, is_wide
        self._printed, self._kernels, self._layout, self._widths = printed, printed_kernels(text), layout, widths
        self._plan: Plan = (
            schedule.plans.of(layout) if isinstance(schedule, BucketSchedule) else plan_of(schedule, layout)
        )
        self._child, self._num_rows = schedule.child, schedule.num_rows

    def forward(self, flat: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """Return the states of all rows, ``[rows, ...]``, and what is kept if there will be a backward pass."""
        tensors, plan = _Tensors.of(flat), self._plan
        states = []
        for leaf in tensors.leaves:
            state = (leaf.new_zeros if plan.is_padded else leaf.new_empty)(self._num_rows, *leaf.shape[1:])
            state[: len(leaf)] = leaf
            states.append(state)
        weights, products, inputs = tensors.weights, None, None
        if self.train or self._is_wide:
            products, inputs = weights.new_empty(plan.num_products), weights.new_empty(plan.num_inputs)
        factors = self._factors(weights)
        common = plan.tiles, self._child, weights, tensors.learned, factors, tensors.features
        arguments = *common, products, inputs, *states
        for tiles in plan.levels:
            self._launch("forward", tiles, *arguments)
        return states, [*flat, *states, factors, products, inputs] if self.train else []

    def backward(self, kept: Any, incoming: Tensors, wanted: Sequence[bool]) -> Tensors:
        """Return the gradients of the tensors that are wanted."""
        plan, size = self._plan, 3 + len(incoming)
        tensors, (*states, factors, products, inputs) = _Tensors.of(kept[:size]), kept[size:]
        wants = _Tensors.of(wanted)
        dtype = products.dtype
        outside = [None if gradient is None else gradient.to(dtype).contiguous() for gradient in incoming]
        learned = tensors.learned
        d_products = torch.empty_like(products) if wants.weights or self._is_wide else None
        d_inputs = torch.empty_like(inputs) if self._is_wide else None
        d_learned = learned.new_zeros(len(plan.tiles), len(learned)) if wants.learned else None
        new_features = torch.zeros_like if plan.is_padded else torch.empty_like
        d_features = new_features(tensors.features) if wants.features else None
        d_edges = products.new_empty(len(self._child), sum(self._widths))
        common = plan.tiles, self._child, tensors.weights, learned, factors, tensors.features, products
        parents = plan.parent_begin, plan.parent_edge
        gradients = d_products, d_inputs, d_learned, d_features, d_edges
        arguments = *common, *parents, *gradients, *states, *outside
        for tiles in reversed(plan.levels):
            self._launch("backward", tiles, *arguments)
        d_leaves = [
            self._leaf_gradient(at, leaf, gradient, d_edges) if is_wanted else None
            for at, (leaf, gradient, is_wanted) in enumerate(zip(tensors.leaves, outside, wants.leaves, strict=True))
        ]
        d_weights = self._weight_gradients(d_products, inputs) if wants.weights and d_products is not None else None
        return _Tensors(d_weights, None if d_learned is None else d_learned.sum(0), d_features, d_leaves).flat()

    def _launch(self, kernel: str, tiles: tuple[int, int], *arguments: Any) -> None:
        first, count = tiles
        precision, options = product_precision(arguments[2].dtype), _ALL_REGISTERS if self._is_wide else {}
        launcher().launch(self._kernels[kernel], (count,), first, *arguments, PRECISION=precision, **options)

    def _factors(self, like: torch.Tensor) -> torch.Tensor | None:
        """The factors of dropouts, which are drawn once in a run, for the rows of each arity."""
        total = sum(self._plan.rows[arity] * _num_factors(printed) for arity, printed in self._printed)
        if not total:
            return None
        factors, begin = like.new_empty(total), 0
        for arity, printed in self._printed:
            rows, width = self._plan.rows[arity], _num_factors(printed)
            of_arity = factors[begin : begin + rows * width].view(rows, width)
            for (rate, _), mask in zip(
                printed.dropouts, of_arity.split([size for _, size in printed.dropouts], 1), strict=True
            ):
                mask.bernoulli_(1 - rate).div_(1 - rate or 1)
            begin += rows * width
        return factors

    def _leaf_gradient(
        self, at: int, leaf: torch.Tensor, outside: torch.Tensor | None, d_edges: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of a state of the leaves: what comes from outside, and from all parents."""
        from treemem.engines.cuda.kernels import segment_sums

        plan, width = self._plan, self._widths[at]
        block = min(64, block_of(width))

        def summed(begins: torch.Tensor, members: Any, rows: torch.Tensor, start: Any, column: int) -> torch.Tensor:
            sums = rows.new_empty(len(begins) - 1, width)
            grid = len(sums), -(-width // block)
            numbers = width, rows.shape[1], column
            launcher().launch(segment_sums, grid, begins, members, rows, start, sums, *numbers, BLOCK=block, DEPTH=16)
            return sums

        start, of_state = None if outside is None else outside[: len(leaf)], sum(self._widths[:at])
        if plan.part_begin is None:
            return summed(plan.leaf_begin, plan.parent_edge, d_edges, start, of_state).view_as(leaf)
        parts = summed(plan.part_begin, plan.parent_edge, d_edges, None, of_state)
        return summed(plan.leaf_begin, None, parts, start, 0).view_as(leaf)

    def _weight_gradients(self, d_products: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        from treemem.engines.cuda.kernels import weight_gradients

        plan = self._plan
        parts = d_products.new_zeros(plan.num_parts, self._layout.num_weights)
        options = {"COLUMNS": COLUMNS, "DEPTH": 32, "PRECISION": product_precision(parts.dtype), **_ALL_REGISTERS}
        launcher().launch(weight_gradients, (len(plan.jobs),), plan.jobs, d_products, inputs, parts, **options)
        return parts[0] if plan.num_parts == 1 else parts.sum(0)
