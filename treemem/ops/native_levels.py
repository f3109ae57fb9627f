"""The levels of split cells as one operation with a backward pass of its own, in C++ (``native/levels.h``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import dropout

from treemem.ops.cell import Cell, Product, SplitCell, State, cell_name, leaf_products, leaf_states, runs_by
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, native_library, why_not_native
from treemem.ops.native.blas import product_function
from treemem.ops.product_input import ChildrenInOrder, ChildrenSum, EachChild, HiddenLayer, StackRows
from treemem.ops.second_derivative import graph_is_retained, once_differentiable, save_for_backward
from treemem.schedule.schedule import GIVEN, Schedule

_ROWS_PER_THREAD = 32  # of a level, on average; fewer gain little, and waiting costs much where cores are busy
_MOST_STATES, _MOST_PRODUCTS = 2, 3


Weights = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Of a cell, see :meth:`treemem.ops.cell.SplitCell.weights`."""


class NotNative(Exception):
    """Why the C++ cannot run: words that can follow a colon."""


@dataclass(frozen=True)
class NativeStep:
    """A step in C++.

    Attributes:
        source: the file; its products are those of the cell, in order, and its states those of the leaves.
        options: what its constructor reads.
        dropout: probability of the dropout within the step; the step multiplies with the factors, ``[hidden_size]``.
        kept_width: how many numbers the step keeps of a row for its backward pass.
        learned: key into the cell's ``weights()`` of the two tensors that the step reads; None if it learns nothing.
    """

    source: Path
    options: tuple[int, ...] = ()
    dropout: float = 0.0
    kept_width: int = 0
    learned: str | None = None


class _Product(ctypes.Structure):
    """``Product`` of ``levels.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("source", "copies", "outputs", "inputs", "features", "read")),
        *((name, ctypes.c_void_p) for name in ("set_of_kind", "weight", "bias", "mask", "values", "gradient")),
        *((name, ctypes.c_void_p) for name in ("d_weight", "d_bias")),
    )


class _Arity(ctypes.Structure):
    """``Arity`` of ``levels.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("arity", "rows", "num_products")),
        ("products", _Product * _MOST_PRODUCTS),
        *((name, ctypes.c_void_p) for name in ("mask", "kept")),
    )


class _Problem(ctypes.Structure):
    """``Problem`` of ``levels.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_rows", "num_leaves", "num_given", "num_levels", "num_arities")),
        *((name, ctypes.c_int64) for name in ("num_states", "num_threads", "hidden_size", "kept_width")),
        *((name, ctypes.c_void_p) for name in ("segments", "segments_of_level", "child", "options", "gemm", "arities")),
        ("widths", ctypes.c_int64 * _MOST_STATES),
        ("states", ctypes.c_void_p * _MOST_STATES),
        ("features", ctypes.c_void_p * 2),
        ("learned", ctypes.c_void_p * 2),
    )


class _Gradients(ctypes.Structure):
    """``Gradients`` of ``levels.h``."""

    _fields_ = (
        ("states", ctypes.c_void_p * _MOST_STATES),
        ("given", ctypes.c_void_p * _MOST_STATES),
        ("features", ctypes.c_void_p * 2),
        *((name, ctypes.c_void_p) for name in ("learned", "rows", "spilled")),
    )


def run_native_levels(
    cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None
) -> State:
    """The states of all rows, level by level, in C++ that is compiled at first use.

    Args:
        cell: a cell with the split form whose steps are in C++.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[rows, ...]``, differentiable once.

    Raises:
        NotNative: the cell has no steps in C++, or :func:`treemem.ops.native.why_not_native`.
    """
    if not runs_by(cell, "native_step"):
        lacks = "has forward hooks, which would not fire" if hasattr(cell, "native_step") else "has no step in C++"
        raise NotNative(f"{cell_name(cell)} {lacks}")
    split: SplitCell = cell  # type: ignore[assignment]
    steps = {arity: split.native_step(arity) for arity in _arities(split, schedule)}
    if None in steps.values():
        raise NotNative(f"{cell_name(cell)} has no step in C++ with its options")
    with_step = [each for each in schedule.leaf_segments if 0 in steps and each.kind != GIVEN]
    weights = split.weights()
    flat = [tensor for pair in weights.values() for tensor in pair]
    features: list[torch.Tensor | None] = [leaf_inputs if with_step else None, inner_inputs]
    read = [each for each in (*features, *flat) if each is not None]
    _check(read)
    leaves = leaf_states(cell, leaf_inputs, [each[:3] for each in schedule.leaf_segments if each not in with_step])
    if not steps:
        return leaves
    read += leaves.values()
    _check(read)
    dtype = read[0].dtype
    if product_function(dtype) is None:
        raise NotNative("torch exports no matrix product to C++")
    *_, step = steps.values()
    assert step is not None
    library = native_library(step.source, read, f"REAL={TYPE_NAMES[dtype]}")
    if library is None:
        raise NotNative("compiling failed, as a warning has said")
    run = _Run(library, step, split, schedule, leaves, weights)
    every = [*features, *leaves.values(), *flat]
    tensors = [None if each is None else each.contiguous() for each in every]
    run.train = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
    return dict(zip(leaves, _Levels.apply(run, *tensors), strict=True))


def _check(tensors: Sequence[torch.Tensor]) -> None:
    reason = why_not_native(tensors)
    if reason is not None:
        raise NotNative(reason)


def _arities(cell: SplitCell, schedule: Schedule) -> list[int]:
    """The arities of rows that take a step, in ascending order."""
    runs_leaves = bool(leaf_products(cell))
    found = {
        segment.arity
        for level in schedule.levels
        for segment in level.segments
        if segment.arity or (runs_leaves and segment.kind != GIVEN)
    }
    return sorted(found)


class _ArityRun:
    """The rows of one arity in a run.

    Args:
        arity, rows: number of children, and of rows.
        products: of the cell.
        dropout: of the step.
    """

    def __init__(self, arity: int, rows: int, products: Sequence[Product], dropout: float) -> None:
        self.arity = arity
        self.rows = rows
        self.products = products
        self.dropout = dropout


class _Run:
    """One run, from its forward to its backward pass; ``tensors`` are features, leaf states, weights and biases.

    Attributes:
        train: whether there will be a backward pass.
        num_given: number of leaf rows that take no step.
        num_states: number of states.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        step: NativeStep,
        cell: SplitCell,
        schedule: Schedule,
        leaves: State,
        weights: Weights,
    ) -> None:
        self._library = library
        self._step = step
        self.train = False
        self._leaf_shapes = [value.shape[1:] for value in leaves.values()]
        self._widths = [value[0].numel() if len(value) else int(np.prod(value.shape[1:])) for value in leaves.values()]
        self.num_states = len(leaves)
        self.num_given = len(next(iter(leaves.values())))
        self._num_rows, self._num_leaves = schedule.num_rows, schedule.num_leaf_rows
        self._child = schedule.child
        self._weight_keys = list(weights)
        self._dtype = next(iter(leaves.values())).dtype
        self._hidden_size = self._widths[0]
        runs_leaves = bool(leaf_products(cell))
        levels = [
            [each for each in level.segments if each.arity or (runs_leaves and each.kind != GIVEN)]
            for level in schedule.levels
        ]
        self._segments_of_level = np.array([len(level) for level in levels], np.int64)
        flat = np.fromiter(chain.from_iterable(chain.from_iterable(levels)), np.int64).reshape(-1, 5)
        self._segments = flat
        sizes, arities = flat[:, 1] - flat[:, 0], flat[:, 3]
        self._num_kinds = int(flat[:, 2].max()) + 1
        self._arities = [
            _ArityRun(
                arity,
                int(sizes[arities == arity].sum()),
                cell.products(arity) if arity else leaf_products(cell),
                step.dropout if arity else 0.0,
            )
            for arity in np.unique(arities).tolist()
        ]
        inner = int(sizes[arities > 0].sum())
        threads = min(torch.get_num_threads(), inner // (_ROWS_PER_THREAD * max(1, len(levels) - 1)))
        self._num_threads = max(1, threads)
        self._options = np.array([*step.options, 0], np.int64)

    def forward(self, tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """Return the states of all rows, ``[rows, ...]``; ``kept`` is filled if there will be a backward pass."""
        leaves: list[Any] = list(tensors[2 : 2 + self.num_states])
        states = []
        for leaf in leaves:
            state = empty_rows(leaf, self._num_rows, *leaf.shape[1:])
            state[self._num_leaves - self.num_given : self._num_leaves] = leaf
            states.append(state)
        self.kept: list[torch.Tensor] = []
        self.masks: dict[tuple[int, int], torch.Tensor] = {}
        problem = self._problem(tensors, states, None, None)
        self._library.forward(ctypes.byref(problem))
        return states

    def backward(
        self,
        tensors: Sequence[torch.Tensor | None],
        states: list[torch.Tensor],
        kept: list[torch.Tensor],
        incoming: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
    ) -> list[torch.Tensor | None]:
        """Return the gradients of the tensors that are wanted; overwrites ``kept``."""
        found: list[torch.Tensor | None] = [None] * len(tensors)
        first = 2 + self.num_states
        of_weights = any(wanted[first:])
        for at, (tensor, is_wanted) in enumerate(zip(tensors, wanted, strict=True)):
            if tensor is not None and (is_wanted or (at >= first and of_weights)):
                found[at] = torch.zeros_like(tensor)
        last = self._num_leaves
        for at in range(self.num_states):
            given, gradient = found[2 + at], incoming[at]
            if given is not None and gradient is not None:
                given.copy_(gradient[last - self.num_given : last])
        problem = self._problem(tensors, states, kept, found[first:] if of_weights else None)
        sizes, begun = (ctypes.c_int64 * 2)(), ctypes.c_void_p()
        outputs = ctypes.byref(sizes), ctypes.byref(sizes, 8), ctypes.byref(begun)
        self._library.begin_backward(ctypes.byref(problem), *outputs)
        try:
            rows = [empty_rows(states[0], size, sum(self._widths)) for size in sizes]
            learned = self._learned_gradient(states[0]) if of_weights and self._step.learned else None
            incoming = [None if each is None else each.to(self._dtype).contiguous() for each in incoming]
            gradients = _Gradients(
                _addresses(incoming, _MOST_STATES),
                _addresses(found[2:first], _MOST_STATES),
                _addresses(found[:2], 2),
                _address(learned),
                *map(_address, rows),
            )
            self._library.backward(begun, ctypes.byref(gradients))
        finally:
            self._library.end_backward(begun)
        if learned is not None:
            at = first + 2 * self._weight_keys.index(self._step.learned)  # type: ignore[arg-type]
            found[at], found[at + 1] = learned.sum(0).unbind(0)
        return [gradient if is_wanted else None for gradient, is_wanted in zip(found, wanted, strict=True)]

    def _learned_gradient(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(self._num_threads, 2, self._hidden_size)

    def _problem(
        self,
        tensors: Sequence[torch.Tensor | None],
        states: list[torch.Tensor],
        kept: list[torch.Tensor] | None,
        weight_gradients: Sequence[torch.Tensor | None] | None,
    ) -> _Problem:
        """The problem; in the forward pass (``kept`` is None) with new memory for what it keeps."""
        flat: Any = tensors[2 + self.num_states :]
        weights = dict(zip(self._weight_keys, zip(flat[::2], flat[1::2], strict=True), strict=True))
        gradients: Any = [None] * len(flat) if weight_gradients is None else weight_gradients
        d_weights = dict(zip(self._weight_keys, zip(gradients[::2], gradients[1::2], strict=True), strict=True))
        self._alive: list[Any] = []  # what the problem points to
        given = None if kept is None else iter(kept)
        self._structures = (_Arity * len(self._arities))()
        for structure, own in zip(self._structures, self._arities, strict=True):
            structure.arity, structure.rows, structure.num_products = own.arity, own.rows, len(own.products)
            for at, product in enumerate(own.products):
                structure.products[at] = self._product(
                    own, at, product, tensors[:2], weights[product.weights], d_weights[product.weights], given
                )
            key = own.arity, -1
            if own.dropout and kept is None:
                self.masks[key] = dropout(states[0].new_ones(own.rows, self._hidden_size), own.dropout)
            structure.mask = _address(self.masks.get(key))
            if self._step.kept_width and self.train:
                structure.kept = _address(
                    self._new_kept(states[0], own.rows, self._step.kept_width) if given is None else next(given)
                )
        learned = weights[self._step.learned] if self._step.learned else ()
        return _Problem(
            *(self._num_rows, self._num_leaves, self.num_given, len(self._segments_of_level), len(self._arities)),
            *(self.num_states, self._num_threads, self._hidden_size, self._step.kept_width),
            *(self._segments.ctypes.data, self._segments_of_level.ctypes.data, self._child.data_ptr()),
            *(self._options.ctypes.data, product_function(self._dtype), ctypes.addressof(self._structures)),
            (ctypes.c_int64 * _MOST_STATES)(*self._widths),
            _addresses(states, _MOST_STATES),
            _addresses(tensors[:2], 2),
            _addresses(learned, 2),
        )

    def _new_kept(self, like: torch.Tensor, rows: int, width: int) -> torch.Tensor:
        self.kept.append(empty_rows(like, rows, width))
        return self.kept[-1]

    def _product(
        self,
        own: _ArityRun,
        at: int,
        product: Product,
        features: Sequence[torch.Tensor | None],
        weights: tuple[torch.Tensor, torch.Tensor],
        gradients: tuple[torch.Tensor | None, torch.Tensor | None],
        given: Any,
    ) -> _Product:
        weight, bias = weights
        source = product.source
        x = features[1 if own.arity else 0]
        num_features = x.shape[1] if x is not None and source.features else 0
        copies = source.copies(own.arity)
        values = gradient = None
        if given is not None:
            values = next(given)
            read_by = [each.source.product for each in own.products if isinstance(each.source, HiddenLayer)]
            if product.name in read_by:
                gradient = torch.empty_like(values)
                self._alive.append(gradient)
        elif self.train:
            values = self._new_kept(weight, own.rows * copies, weight.shape[1])
        if product.dropout and given is None:
            ones = weight.new_ones(own.rows * copies, weight.shape[2])
            self.masks[own.arity, at] = dropout(ones, product.dropout)
        read = 0
        if isinstance(source, HiddenLayer):
            read = [each.name for each in own.products].index(source.product)
        return _Product(
            *(_source(source), copies, weight.shape[1], weight.shape[2] - num_features, num_features, read),
            self._set_of_kind(product),
            *map(_address, (weight, bias, self.masks.get((own.arity, at)), values, gradient, *gradients)),
        )

    def _set_of_kind(self, product: Product) -> int:
        """Where an array with the set of each kind is; 0 if all use the first."""
        if product.set_of_kind is None:
            return 0
        found = np.zeros(self._num_kinds, np.int64)
        for kind, number in product.set_of_kind.items():
            if 0 <= kind < self._num_kinds:
                found[kind] = number
        self._alive.append(found)
        return found.ctypes.data


class _Levels(torch.autograd.Function):
    """A run as a node of the autograd graph: ``(run, *features, *leaf states, *weights and biases)``."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        states = run.forward(tensors)
        ctx.run = run
        ctx.num_kept = len(run.kept)
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, *tensors, *states, *run.kept)
        run.kept = []
        return tuple(states)

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, unpacked: tuple[torch.Tensor | None, ...], *incoming: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        run: _Run = ctx.run
        saved: list[Any] = [None if each is None else each.contiguous() for each in unpacked]
        num_tensors = len(saved) - run.num_states - ctx.num_kept
        tensors, states = saved[:num_tensors], saved[num_tensors : num_tensors + run.num_states]
        kept = saved[num_tensors + run.num_states :]
        if graph_is_retained():
            kept = [each.clone() for each in kept]
        found = run.backward(tensors, states, kept, incoming, ctx.needs_input_grad[1:])
        if not graph_is_retained():
            run.masks = {}  # which would stay as long as any state does
        return None, *found


def _source(source: Any) -> int:
    """The number of what a product reads in ``levels.h``."""
    if isinstance(source, ChildrenInOrder):
        return int(source.tops)
    return {ChildrenSum: 2, EachChild: 3, StackRows: 4, HiddenLayer: 5}[type(source)]


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(tensors: Sequence[torch.Tensor | None], count: int) -> Any:
    return (ctypes.c_void_p * count)(*map(_address, tensors))
