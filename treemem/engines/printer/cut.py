"""Cuts the formula of a user's cell at its matrix products, so that a level multiplies at once."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from treemem.engines.cell import State, checked_state
from treemem.engines.printer.compiled_formula import (
    PrintedCell,
    cached_formula,
    formula_key,
    learned_by,
    parameter_of,
    parts_of,
    printed,
    tensors_of,
    variables_of,
)
from treemem.engines.printer.rewritten import rewritten
from treemem.engines.printer.symbolic import StepError, where
from treemem.engines.printer.trace import StepShape, unnoticed

_MATMUL = (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.__matmul__)
_MOST_ENTRIES = 64  # of a parameter that may stack biases


class Part(NamedTuple):
    """A parameter, or an entry of one that stacks several.

    Attributes:
        name: of the parameter.
        entry: which entry; None for all.
        is_transposed: whether what is used is its transpose.
        learns: whether the states have a gradient for it.
    """

    name: str
    entry: int | None = None
    is_transposed: bool = False
    learns: bool = True

    def of(self, cell: torch.nn.Module) -> torch.Tensor:
        value: torch.Tensor = parameter_of(cell, self.name)
        value = value if self.entry is None else value[self.entry]
        value = value if self.learns else value.detach()
        return value.t() if self.is_transposed else value


class Map(NamedTuple):
    """Weight, ``[outputs, inputs]``, and bias of a product; None for no bias."""

    weight: Part
    bias: Part | None

    def without_gradient(self) -> Map:
        bias = None if self.bias is None else self.bias._replace(learns=False)
        return Map(self.weight._replace(learns=False), bias)


class CutCell(NamedTuple):
    """The formula of nodes of one arity and kind.

    Attributes:
        printed: in C++.
        maps: weights and biases of each product; results of several are side by side.
    """

    printed: PrintedCell
    maps: tuple[tuple[Map, ...], ...]


_hooks_of_saved = torch._C._autograd._top_saved_tensors_default_hooks


def cut_cell(
    cell: torch.nn.Module,
    key: Hashable,
    arity: int,
    kind: int,
    states: Mapping[str, tuple[int, ...]],
    features: int | None,
) -> CutCell:
    """Return the products and the step of a cell.

    Args:
        cell: the cell.
        key: its ``formula_key``.
        arity, kind: of the nodes.
        states: shape of each state.
        features: width of what a node reads of its own; None if nothing.

    Raises:
        StepError: the formula cannot be printed.
        CellError: it returns states that are not what the protocol says.
    """
    full_key = (key, arity, kind, tuple(states.items()), features)
    return cached_formula(full_key, lambda: _Cutting(cell, arity, kind, states, features).cut())


class _Reached(Exception):
    """The inputs of the product that was asked for."""


class _Products(TorchFunctionMode):
    """Takes the results of products as given, and notes what they multiply.

    Args:
        known: see :func:`_known_parts`.
        given: results of the first products, ``[m * copies, outputs]`` each; None: compute them.
        until: the product whose inputs are wanted; None for none.
    """

    def __init__(
        self, known: Mapping[Any, tuple[Part, bool]], given: Sequence[torch.Tensor] | None, until: int | None = None
    ) -> None:
        super().__init__()
        self._known, self._given, self._until = known, given, until
        self._hooks = _hooks_of_saved(False)
        self.found: list[tuple[Map, torch.Tensor]] = []
        self.versions: list[int] = []  # of the inputs, which may change later

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _hooks_of_saved(False) != self._hooks:
            raise StepError("a checkpoint within the cell, or another hook on saved tensors, cannot be printed")
        written = rewritten(func, args, kwargs)
        if written is not None:
            with self:
                return written(*args, **kwargs)
        product = self._product(func, *args, **kwargs)
        if product is None:
            return func(*args, **kwargs)
        number = len(self.found)
        self.found.append(product)
        self.versions.append(product[1]._version)
        if number == self._until:
            raise _Reached
        if self._given is None:
            result = func(*args, **kwargs).detach().requires_grad_()
            result.number_of_product = number  # what follows ends here
            return result.clone()  # which may be overwritten
        return self._given[number].view(*product[1].shape[:-1], -1).clone()

    def _product(self, func: Any, *args: Any, **kwargs: Any) -> tuple[Map, torch.Tensor] | None:
        """The map and the inputs; None if it is not the product of inputs and a parameter."""
        if not torch.is_grad_enabled():  # its weights get no gradient
            return None
        if func is torch.nn.functional.linear:
            return self._linear(*args, **kwargs)
        transposed = self._part(args[1]) if func in _MATMUL and len(args) == 2 and args[1].dim() == 2 else None
        if transposed is not None:
            return Map(transposed._replace(is_transposed=not transposed.is_transposed), None), args[0]
        return None

    def _part(self, value: torch.Tensor) -> Part | None:
        """The parameter that a tensor is; None for others, such as a parameter without its gradient."""
        part, wants = self._known.get(where(value), (None, False))
        return part if value.requires_grad == wants else None

    def _linear(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> tuple[Map, torch.Tensor] | None:
        of_weight = self._part(weight)
        of_bias = None if bias is None else self._part(bias)
        if of_weight is None or (bias is not None and of_bias is None):
            return None
        return Map(of_weight, of_bias), input


def _known_parts(parameters: Mapping[str, torch.Tensor]) -> dict[Any, tuple[Part, bool]]:
    """Tensors of a cell, their entries and transposes, by where they are; and whether they want gradients."""
    known: dict[Any, tuple[Part, bool]] = {}
    for name, value in parameters.items():
        known[where(value)] = Part(name), value.requires_grad
    for name, value in parameters.items():
        is_stack = value.dim() == 3 or (value.dim() == 2 and len(value) <= _MOST_ENTRIES)
        for entry in range(len(value) if is_stack else 0):
            known.setdefault(where(value[entry]), (Part(name, entry), value.requires_grad))
        if value.dim() == 2:
            known.setdefault(where(value.t()), (Part(name, None, True), value.requires_grad))
    return known


def _end(tensor: torch.Tensor) -> Any:
    """The node of autograd that makes a tensor, or that adds to its gradient; None if it has no gradient."""
    return torch.autograd.graph.get_gradient_edge(tensor).node if tensor.requires_grad else None


def _double_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """What stands for a tensor of a cell: its numbers do not matter, and copying them would wait for their device."""
    if not tensor.is_floating_point():
        return tensor.cpu()
    return tensor.double() if tensor.device.type == "cpu" else torch.ones(tensor.shape, dtype=torch.float64)


class _Cutting:
    def __init__(
        self, cell: torch.nn.Module, arity: int, kind: int, states: Mapping[str, tuple[int, ...]], features: int | None
    ) -> None:
        self._cell: Any = copy.deepcopy(cell)._apply(_double_on_cpu)  # it may cast to the type of its weights
        self._kind = kind
        self._shape = StepShape(arity, next(iter(states.values()))[-1], {}, states, features=features)
        self._tensors = {name: value.requires_grad_() for name, value in tensors_of(self._cell).items()}
        self._known = _known_parts(self._tensors)

    def cut(self) -> CutCell:
        explored, ends = self._explore()
        products, inputs = (
            explored.found,
            [(where(inputs), version) for (_, inputs), version in zip(explored.found, explored.versions, strict=True)],
        )
        learning = set()
        for number in reversed(range(len(products))):
            if any(getattr(variable, "number_of_product", None) == number for variable in variables_of(ends)):
                learning.add(number)
                ends.append(_end(products[number][1]))
        groups: list[list[int]] = []  # products that multiply the same
        for number in range(len(products)):
            same = [group for group in groups if inputs[group[0]] == inputs[number]]
            if not same:
                groups.append([])
            (same[0] if same else groups[-1]).append(number)
        widths = [len(linear_map.weight.of(self._cell)) for linear_map, _ in products]
        if [number for group in groups for number in group] != list(range(len(products))):
            groups = [[number] for number in range(len(products))]
        names = [f"product{at}" for at in range(len(groups))]
        copies = [max(1, products[group[0]][1].shape[:-1].numel()) for group in groups]
        learned = learned_by(ends, self._tensors)
        D = self._shape.D
        parts = [[part for index in group for part in parts_of(D, widths[index])] for group in groups]
        shape = replace(
            self._shape,
            products={
                name: (count, tuple(part_sizes)) for name, count, part_sizes in zip(names, copies, parts, strict=True)
            },
            learned=[tuple(self._tensors[name].shape) for name in learned],
        )
        sizes = [(count, int(products[group[0]][1].shape[-1])) for count, group in zip(copies, groups, strict=True)]

        def formula(at: int | None) -> Any:
            return self._formula(learned, groups, widths, None if at is None else groups[at][0])

        printed_cell = printed(type(self._cell).__name__, formula, shape, sizes, learned)
        maps = [linear if at in learning else linear.without_gradient() for at, (linear, _) in enumerate(products)]
        return CutCell(printed_cell, tuple(tuple(maps[index] for index in group) for group in groups))

    def _explore(self) -> tuple[_Products, list[Any]]:
        """The products of one node; and the nodes of autograd at which its states end."""
        like = next(iter(self._tensors.values()), torch.empty(0))
        shape = self._shape
        with unnoticed(), _Products(self._known, None) as products:
            children = {name: like.new_ones(1, shape.arity, *size) for name, size in shape.states.items()}
            x = None if shape.features is None else like.new_ones(1, shape.features)
            before = self._written()
            states = self._cell(children, x, self._kind)
            if self._written() != before:
                raise StepError("it writes to attributes or buffers of the cell, which C++ does not")
            like_rows = {name: value[:, 0] for name, value in children.items()}
            checked_state(states, like_rows, 1, self._cell, f"forward(..., {self._kind})")
        return products, [_end(state) for state in states.values()]

    def _written(self) -> Hashable:
        """What the cell may change in itself."""
        return formula_key(self._cell), tuple((id(buffer), buffer._version) for buffer in self._cell.buffers())

    def _formula(
        self, learned: tuple[str, ...], groups: Sequence[Sequence[int]], widths: Sequence[int], until: int | None
    ) -> Any:
        """What is printed: the states, or the inputs of product ``until``, from the products before."""

        def formula(products: State, children: State, *rest: torch.Tensor) -> State:
            given = list(rest)
            x = None if self._shape.features is None else given.pop(0)
            parts: list[torch.Tensor] = []
            for value, group in zip(products.values(), groups, strict=False):
                parts += value.split([widths[index] for index in group], 1)
            named = dict(zip(learned, given, strict=True))
            with _Products(self._known | _known_parts(named), parts, until) as mode:
                try:
                    return torch.func.functional_call(self._cell, named, (children, x, self._kind))
                except _Reached:
                    inputs = mode.found[until or 0][1]
                    return {"inputs": inputs.reshape(-1, inputs.shape[-1])}

        return formula
