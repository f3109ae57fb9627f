"""Cells over trees in C++, as one operation: ``levels.cpp`` with steps printed from the cells' formulas."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from treemem.engines.cell import (
    Cell,
    Features,
    LabelVectors,
    State,
    cell_name,
    feature_rows,
    leaf_products,
    leaf_states,
)
from treemem.engines.formulas import (
    Formula,
    Weights,
    kinds_by_arity,
    not_printed,
    printable_module,
    printed_formulas,
    split_formulas,
    width_of,
)
from treemem.engines.level_library import (
    ARITY,
    GRADIENTS,
    PAIR,
    PROBLEM,
    PRODUCT,
    SOURCE,
    NotNative,
    check_native,
    compiled,
    integers,
    row_functions,
)
from treemem.engines.printer.compiled_formula import parameter_of
from treemem.engines.printer.symbolic import StepError
from treemem.native.blas import product_function
from treemem.native.large_pages import empty_rows
from treemem.native.run import NativeRun, Tensors
from treemem.native.run import run_native as run_under_autograd
from treemem.native.second_derivative import graph_is_retained
from treemem.native.structures import Filled
from treemem.schedule.schedule import GIVEN, Schedule

_ROWS_PER_THREAD = 32  # of a level, on average; fewer gain little, and waiting costs much where cores are busy
_MOST_STATES, _MOST_PRODUCTS = 4, 12
_MOST_CHILDREN = 128  # of a node; tracing takes longer with each


def run_native(cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: Features) -> State:
    """The states of all rows, level by level, in C++ that is compiled at first use.

    A product of features that rows have by their label is made once for each label.

    Args:
        cell: a cell with the split form, whose step can be printed.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, vectors by label, or None.

    Returns:
        Each state as ``[rows, ...]``, differentiable once.

    Raises:
        NotNative: the cell has no step that can be printed, or :func:`treemem.native.why_not_native`.
    """
    split: Any = cell
    plain_cell: Any = printable_module(cell)
    is_split = callable(getattr(plain_cell, "step", None))
    given = [part for part in schedule.leaf_segments if part.kind == GIVEN or not (is_split and leaf_products(split))]
    of_leaves = leaf_inputs if len(given) < len(schedule.leaf_segments) else None
    read = (of_leaves, inner_inputs if isinstance(inner_inputs, torch.Tensor) else None)
    check_native([*(tensor for tensor in read if tensor is not None), *plain_cell.parameters()])
    leaves = leaf_states(cell, leaf_inputs, [segment[:3] for segment in given])
    if len(schedule.levels) < 2 and len(given) == len(schedule.leaf_segments):
        return leaves
    if len(leaves) > _MOST_STATES:
        raise NotNative(f"{cell_name(cell)} has {len(leaves)} states; C++ takes {_MOST_STATES}")
    kinds = kinds_by_arity(schedule, with_leaves=is_split and bool(leaf_products(split)))
    most = max(kinds, default=0)
    if most > _MOST_CHILDREN:
        raise NotNative(f"a node has {most} children; C++ is printed for up to {_MOST_CHILDREN}")
    states = {name: tuple(value.shape[1:]) for name, value in leaves.items()}
    widths = None if of_leaves is None else of_leaves.shape[1], width_of(inner_inputs)
    formulas, weights = printed_formulas(plain_cell, kinds, states, widths)
    most = max(len(formula.weights) for formula in formulas.values())
    if most > _MOST_PRODUCTS:
        raise not_printed(plain_cell, StepError(f"it has {most} matrix products; C++ takes {_MOST_PRODUCTS}"))
    names = dict.fromkeys(name for formula in formulas.values() for name in formula.printed.learned)
    label, of_labels = None, {}
    if isinstance(inner_inputs, LabelVectors) and _repeats(inner_inputs, formulas, weights):
        label, vectors = inner_inputs.label, inner_inputs.of_labels()
        of_labels = _products_of_labels(vectors, formulas, weights)
        inner_inputs = vectors.detach()
    features = of_leaves, feature_rows(inner_inputs)
    tensors = _Tensors(features, leaves, {name: parameter_of(plain_cell, name) for name in names}, weights, of_labels)
    flat = [None if tensor is None else tensor.contiguous() for tensor in tensors.flat()]
    check_native([tensor for tensor in flat if tensor is not None])
    run = _Run(formulas, schedule, tensors, label)
    run.train = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in flat)
    return dict(zip(leaves, run_under_autograd(run, *flat), strict=True))


def _repeats(features: LabelVectors, formulas: Mapping[int, Formula], weights: Weights) -> bool:
    """Whether making products once for each label saves at least half of them."""
    of_inner = [formula for arity, formula in formulas.items() if arity]
    sets = max((len(weights[key][0]) for formula in of_inner for key, _ in formula.weights), default=1)
    is_pure = all(formula.printed.reads_products_of_features for formula in of_inner)
    return is_pure and 2 * sets * features.num_labels <= len(features.label)


def _products_of_labels(
    vectors: torch.Tensor, formulas: Mapping[int, Formula], weights: Weights
) -> dict[tuple[int, int], torch.Tensor]:
    """Return, by arity and product, bias and what features add to it, ``[sets, labels * copies, outputs]``."""
    of_labels = {}
    for arity, formula in formulas.items():
        for at, (product, (key, _)) in enumerate(zip(formula.printed.products, formula.weights, strict=True)):
            weight, bias = weights[key]
            if arity and product.from_below < weight.shape[2]:
                inputs = product.of_features(vectors).expand(len(weight), -1, -1)
                of_labels[arity, at] = torch.baddbmm(bias[:, None], inputs, weight[:, :, product.from_below :].mT)
    return of_labels


class _Tensors(NamedTuple):
    """What a run reads, or the gradients of it.

    Attributes:
        features: of the leaf rows, and of the inner rows or of their labels, where they read any.
        leaves: the states of the leaf rows that take no step.
        learned: parameters that steps read, by name.
        weights: stacked weights and biases, by key.
        of_labels: see :func:`_products_of_labels`; empty if features are those of rows.
    """

    features: tuple[torch.Tensor | None, torch.Tensor | None]
    leaves: State
    learned: dict[str, torch.Tensor]
    weights: dict[str, tuple[torch.Tensor, torch.Tensor]]
    of_labels: dict[tuple[int, int], torch.Tensor]

    def flat(self) -> list[torch.Tensor | None]:
        others = *self.leaves.values(), *self.learned.values(), *chain(*self.weights.values()), *self.of_labels.values()
        return [*self.features, *others]

    def like(self, flat: Sequence[Any]) -> _Tensors:
        """The same structure of other tensors."""
        rest = iter(flat)
        return _Tensors(
            (next(rest), next(rest)),
            {name: next(rest) for name in self.leaves},
            {name: next(rest) for name in self.learned},
            {key: (next(rest), next(rest)) for key in self.weights},
            {key: next(rest) for key in self.of_labels},
        )


class _Run(NativeRun):
    """One run, from its forward to its backward pass.

    Args:
        formulas: by arity.
        schedule: the rows.
        tensors: what it reads.
        label: of each inner row, if features are of labels.

    Attributes:
        train: whether there will be a backward pass.
        tensors: for the structure of what it reads.
    """

    refusal = None

    def __init__(
        self, formulas: dict[int, Formula], schedule: Schedule, tensors: _Tensors, label: torch.Tensor | None
    ) -> None:
        first = next(iter(tensors.leaves.values()))
        self.train = False
        self.tensors = tensors
        self._dtype = first.dtype
        self._library: Any = compiled(SOURCE, first)
        self._formulas = formulas
        self._widths = [int(np.prod(value.shape[1:])) for value in tensors.leaves.values()]
        self._num_given, self._hidden_size = len(first), first.shape[-1]
        self._num_rows, self._num_leaves, self._child = schedule.num_rows, schedule.num_leaf_rows, schedule.child
        levels = [
            [segment for segment in level.segments if segment.arity in formulas and segment.kind != GIVEN]
            for level in schedule.levels
        ]
        self._segments_of_level = integers([len(level) for level in levels])
        segments = np.fromiter(chain.from_iterable(chain.from_iterable(levels)), np.int64).reshape(-1, 5)
        self._segments = torch.from_numpy(segments)
        sizes, arities = segments[:, 1] - segments[:, 0], segments[:, 3]
        self._rows = {arity: int(sizes[arities == arity].sum()) for arity in formulas}
        num_kinds = int(segments[:, 2].max()) + 1
        self._sets = {
            arity: [
                None if sets is None else integers([sets.get(kind, 0) for kind in range(num_kinds)])
                for _, sets in formula.weights
            ]
            for arity, formula in formulas.items()
        }
        self._label = None if label is None else label.contiguous()
        self._num_labels = 0 if tensors.features[1] is None or label is None else len(tensors.features[1])
        self._num_features = integers([0 if feature is None else feature.shape[1] for feature in tensors.features])
        threads = int(sizes[arities > 0].sum()) // (_ROWS_PER_THREAD * max(1, len(levels) - 1))
        self._num_threads = max(1, min(torch.get_num_threads(), threads))

    def forward(self, flat: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """Return the states of all rows, ``[rows, ...]``, and what is kept if there will be a backward pass."""
        tensors, states = self.tensors.like(flat), []
        for leaf in tensors.leaves.values():
            state = empty_rows(leaf, self._num_rows, *leaf.shape[1:])
            state[self._num_leaves - self._num_given : self._num_leaves] = leaf
            states.append(state)
        self.kept: list[torch.Tensor] = []
        self.masks: dict[int, torch.Tensor] = {}
        self._library.forward(self._problem(tensors, states, None, None))
        products, self.kept = self.kept, []
        return states, [*flat, *states, *products]

    def backward(self, kept: Any, incoming: Tensors, flat_wanted: Sequence[bool]) -> Tensors:
        """Return the gradients of the tensors that are wanted; overwrites the products, unless they are read again."""
        count, retained = len(flat_wanted), graph_is_retained()
        tensors, wanted = self.tensors.like(kept[:count]), self.tensors.like(flat_wanted)
        states, products = kept[count : count + len(incoming)], kept[count + len(incoming) :]
        gradients = self._gradients(
            tensors, states, [product.clone() if retained else product for product in products], incoming, wanted
        )
        if not retained:
            self.masks = {}  # which would stay as long as any state does
        return gradients.flat()

    def _gradients(
        self,
        tensors: _Tensors,
        states: list[torch.Tensor],
        kept: list[torch.Tensor],
        incoming: Tensors,
        wanted: _Tensors,
    ) -> _Tensors:
        learned = *wanted.learned.values(), *chain(*wanted.weights.values()), *wanted.of_labels.values()
        learns = any(learned)
        flat: list[torch.Tensor | None] = []
        for at, (tensor, is_wanted) in enumerate(zip(tensors.flat(), wanted.flat(), strict=True)):
            is_learned = at >= 2 + len(states)
            wants = tensor is not None and (is_wanted or (is_learned and learns))
            flat.append(torch.zeros_like(tensor) if wants else None)  # type: ignore[arg-type]
        d_tensors = tensors.like(flat)
        for given, gradient in zip(d_tensors.leaves.values(), incoming, strict=True):
            if given is not None and gradient is not None:
                given.copy_(gradient[self._num_leaves - self._num_given : self._num_leaves])
        problem = self._problem(tensors, states, kept, d_tensors if learns else None)
        sizes, begun = (ctypes.c_int64 * 2)(), ctypes.c_void_p()
        outputs = ctypes.byref(sizes), ctypes.byref(sizes, 8), ctypes.byref(begun)
        self._library.begin_backward(problem, *outputs)
        try:
            rows = [empty_rows(states[0], size, sum(self._widths)) for size in sizes]
            outside = [None if d_state is None else d_state.to(self._dtype).contiguous() for d_state in incoming]
            gradients = GRADIENTS(
                **{"states": outside, "given": list(d_tensors.leaves.values()), "features": d_tensors.features},
                **dict(zip(("rows", "spilled"), rows, strict=True)),
            )
            self._library.backward(begun, gradients)
        finally:
            self._library.end_backward(begun)
        for arity, of_threads in self._d_learned.items() if learns else ():
            total = of_threads.sum(0)
            for name in self._formulas[arity].printed.learned:
                part, total = total.tensor_split([d_tensors.learned[name].numel()])
                d_tensors.learned[name].add_(part.view_as(d_tensors.learned[name]))
        return d_tensors

    def _problem(
        self, tensors: _Tensors, states: list[torch.Tensor], kept: list[torch.Tensor] | None, d_tensors: _Tensors | None
    ) -> Filled:
        """The problem; in the forward pass (``kept`` is None) with new memory for what it keeps."""
        self._d_learned: dict[int, torch.Tensor] = {}
        given = None if kept is None else iter(kept)
        arities = []
        for arity, formula in self._formulas.items():
            functions, vectors = row_functions(formula.printed, self._dtype)
            mask = self._mask(arity, formula.printed.dropouts, states[0])
            learned = None
            if formula.printed.learned:
                learned = torch.cat([tensors.learned[name].flatten() for name in formula.printed.learned])
                self._d_learned[arity] = learned.new_zeros(self._num_threads, len(learned))
            products = [
                self._product(arity, at, tensors, d_tensors, given) | {name: functions[f"{name}{at}"] for name in PAIR}
                for at in range(len(formula.weights))
            ]
            arities.append(
                ARITY(
                    **{"arity": arity, "rows": self._rows[arity], "num_products": len(products)},
                    **{"products": [PRODUCT(**product) for product in products], "mask": mask, "learned": learned},
                    **{name: functions[name] for name in ("forward", "backward")},
                    d_learned=self._d_learned.get(arity),
                    num_scratch=vectors * self._hidden_size,
                    num_masked=0 if mask is None else mask.shape[1],
                    num_learned=0 if learned is None else len(learned),
                )
            )
        return PROBLEM(
            **{"num_rows": self._num_rows, "num_leaves": self._num_leaves, "num_given": self._num_given},
            **{"num_levels": len(self._segments_of_level), "num_arities": len(arities), "num_states": len(states)},
            **{"num_threads": self._num_threads, "hidden_size": self._hidden_size, "child": self._child},
            **{"segments": self._segments, "segments_of_level": self._segments_of_level, "arities": arities},
            **{"states": states, "widths": integers(self._widths), "num_features": self._num_features},
            **{"features": tensors.features, "gemm": product_function(self._dtype)},
            **{"label": self._label, "num_labels": self._num_labels},
        )

    def _mask(self, arity: int, dropouts: Sequence[tuple[float, int]], like: torch.Tensor) -> torch.Tensor | None:
        """The factors of dropouts, which are drawn once in a run."""
        if dropouts and arity not in self.masks:
            widths = [width for _, width in dropouts]
            self.masks[arity] = like.new_empty(self._rows[arity], sum(widths))
            for (rate, _), mask in zip(dropouts, self.masks[arity].split(widths, 1), strict=True):
                mask.bernoulli_(1 - rate).div_(1 - rate or 1)
        return self.masks.get(arity)

    def _product(
        self, arity: int, at: int, tensors: _Tensors, d_tensors: _Tensors | None, given: Any
    ) -> dict[str, Any]:
        formula, rows = self._formulas[arity], self._rows[arity]
        product, (key, _) = formula.printed.products[at], formula.weights[at]
        weight, bias = tensors.weights[key]
        d_weight, d_bias = (None, None) if d_tensors is None else d_tensors.weights[key]
        values = gradient = None
        if given is not None:
            values = next(given)
            gradient = torch.empty_like(values) if product.is_read else None
        elif self.train:
            values = empty_rows(weight, rows * product.copies, weight.shape[1])
            self.kept.append(values)
        of_labels, d_of_labels = (
            None if group is None else group.of_labels.get((arity, at)) for group in (tensors, d_tensors)
        )
        return {
            **{"of_labels": of_labels, "d_of_labels": d_of_labels},
            **{"copies": product.copies, "outputs": weight.shape[1], "inputs": weight.shape[2]},
            **{"from_below": product.from_below, "set_of_kind": self._sets[arity][at]},
            **{"weight": weight, "bias": bias, "values": values, "gradient": gradient},
            **{"d_weight": d_weight, "d_bias": d_bias},
        }


class GrowingRows:
    """Inner rows of one arity whose children become known step by step, in C++ and without gradients.

    Args:
        cell: in the split form, with one kind of inner rows and without dropout.
        states: of all rows by name, ``[rows, ...]``. Those of leaves come first and are filled in.
        child: the rows of the children, int64 ``[inner rows, arity]``. May be filled in later.
        features: of the inner rows, ``[inner rows, input_size]``, or None. May be filled in later.

    Raises:
        NotNative: see :func:`run_native`.
    """

    def __init__(self, cell: Any, states: State, child: torch.Tensor, features: torch.Tensor | None = None) -> None:
        first, (num_inner, arity) = next(iter(states.values())), child.shape
        width = 0 if features is None else features.shape[1]
        shapes = {name: tuple(value.shape[1:]) for name, value in states.items()}
        formulas, weights = split_formulas(cell, {arity: [0]}, shapes, (None, width or None))
        formula = formulas[arity].printed
        maps = [[tensor.detach().contiguous() for tensor in weights[key]] for key, _ in formulas[arity].weights]
        learned = [parameter_of(cell, name).detach().flatten() for name in formula.learned]
        check_native([*states.values(), *chain(*maps), *learned, *([] if features is None else [features])])
        functions, vectors = row_functions(formula, first.dtype)
        unused = dict.fromkeys(("set_of_kind", "values", "gradient", "d_weight", "d_bias", "of_labels", "d_of_labels"))
        products = [
            PRODUCT(
                **{"copies": product.copies, "outputs": len(bias[0]), "inputs": weight.shape[2], "weight": weight},
                **{"bias": bias, "from_below": product.from_below, **unused},
                **{name: functions[f"{name}{at}"] for name in PAIR},
            )
            for at, (product, (weight, bias)) in enumerate(zip(formula.products, maps, strict=True))
        ]
        of_arity = ARITY(
            **{"arity": arity, "rows": num_inner, "num_products": len(products), "products": products},
            **{name: functions[name] for name in ("forward", "backward")},
            **{"mask": None, "num_masked": 0, "num_scratch": vectors * first.shape[-1]},
            **{"learned": torch.cat(learned) if learned else None, "d_learned": None, "num_learned": 0},
        )
        self._num_leaves, self._arity, self._library = len(first) - num_inner, arity, compiled(SOURCE, first)
        self._segment = integers([0] * 5)
        fixed = {
            **{"num_rows": len(first), "num_leaves": self._num_leaves, "num_given": self._num_leaves, "num_levels": 1},
            **{"num_arities": 1, "arities": [of_arity], "num_states": len(states), "states": list(states.values())},
            **{"hidden_size": first.shape[-1], "widths": integers([state[0].numel() for state in states.values()])},
            **{"features": [None, features], "num_features": integers([0, width]), "child": child},
            **{"segments": self._segment, "segments_of_level": integers([1]), "gemm": product_function(first.dtype)},
            **{"label": None, "num_labels": 0},
        }
        self._problems = [PROBLEM(**fixed, num_threads=1 + at) for at in range(torch.get_num_threads())]

    def compute(self, begin: int, end: int) -> None:
        """Fill in the states of the rows ``begin`` to ``end - 1``, which read earlier ones."""
        self._segment.copy_(integers([begin, end, 0, self._arity, (begin - self._num_leaves) * self._arity]))
        threads = min(len(self._problems), max(1, (end - begin) // _ROWS_PER_THREAD))
        self._library.forward(self._problems[threads - 1])
