"""The printed step of a cell: found once for a formula, and compiled once for a text."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch

from treemem.engines.printer.cpp import cpp_source
from treemem.engines.printer.symbolic import StepError
from treemem.engines.printer.trace import Step, StepShape, trace_step, unnoticed
from treemem.ops.cell import Product, State
from treemem.ops.native import Printed
from treemem.ops.product_input import HiddenLayer


@dataclass(frozen=True)
class PrintedStep:
    """The step of nodes of one arity.

    Attributes:
        source: what is compiled.
        learned: names of the cell's parameters that the step reads.
        dropouts: rate and number of factors a row of each dropout.
    """

    source: Printed
    learned: tuple[str, ...]
    dropouts: tuple[tuple[float, int], ...]


_printed: dict[Hashable, PrintedStep | StepError] = {}


def printed_step(
    cell: Any,
    key: Hashable,
    arity: int,
    products: Sequence[Product],
    widths: Mapping[str, int],
    states: Mapping[str, tuple[int, ...]],
) -> PrintedStep:
    """Return the step of a cell.

    Args:
        cell: the cell, with ``step``.
        key: its :func:`formula_key`.
        arity: number of children.
        products: of such nodes.
        widths: outputs of each product.
        states: shape of each state of a node.

    Raises:
        StepError: it cannot be printed.
    """
    key = (key, arity, tuple(widths.items()), tuple(states.items()))
    if key not in _printed:
        try:
            _printed[key] = _print(cell, arity, products, widths, states)
        except StepError as error:
            _printed[key] = error
    found = _printed[key]
    if isinstance(found, StepError):
        raise found
    return found


def _print(
    cell: Any,
    arity: int,
    products: Sequence[Product],
    widths: Mapping[str, int],
    states: Mapping[str, tuple[int, ...]],
) -> PrintedStep:
    D = next(iter(states.values()))[-1]
    parts = {
        each.name: each.parts or [D] * (widths[each.name] // D) + [1] * (widths[each.name] % D) for each in products
    }
    of_products = {each.name: (each.source.copies(arity), tuple(parts[each.name])) for each in products}
    read = [each.source.product for each in products if isinstance(each.source, HiddenLayer)]
    parameters = dict(cell.named_parameters())
    like = next(iter(parameters.values()), torch.empty(0))
    with unnoticed():
        given = {name: like.new_zeros(copies, sum(sizes)) for name, (copies, sizes) in of_products.items()}
        children = {name: like.new_zeros(1, arity, *size) for name, size in states.items()}
        found = cell.step(given, children)
    learned = learned_by([each.grad_fn for each in found.values()], parameters)
    module = _Step(cell)

    def step(products: State, children: State, *tensors: torch.Tensor) -> State:
        named = {f"cell.{name}": value for name, value in zip(learned, tensors, strict=True)}
        return torch.func.functional_call(module, named, (products, children))

    shape = StepShape(arity, D, of_products, states, [tuple(parameters[name].shape) for name in learned], read)
    return printed(type(cell).__name__, step, shape, learned)


def printed(name: str, formula: Step, shape: StepShape, learned: tuple[str, ...]) -> PrintedStep:
    """Return a formula in C++.

    Args:
        name: of the cell.
        formula: see :func:`treemem.engines.printer.trace.trace_step`.
        shape: of what it reads and writes.
        learned: names of the parameters that it reads.

    Raises:
        StepError: it cannot be printed.
    """
    program = trace_step(formula, shape)
    return PrintedStep(Printed(name, cpp_source(program)), learned, program.dropouts)


class _Step(torch.nn.Module):
    """The step of a cell as a module, for ``functional_call``."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, products: State, children: State) -> State:
        return self.cell.step(products, children)


def parameter_of(cell: torch.nn.Module, name: str) -> torch.Tensor:
    """Return a parameter by its name, or the tensor that ``functional_call`` has put in its place."""
    found: Any = cell
    for each in name.split("."):
        found = getattr(found, each)
    return found


def learned_by(ends: Sequence[Any], parameters: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Return the names of the parameters that a formula reads.

    Args:
        ends: of its autograd graph.
        parameters: of the cell.

    Raises:
        StepError: it reads a tensor that needs gradients and is not a parameter of the cell.
    """
    names = {id(value): name for name, value in parameters.items()}
    found: set[str] = set()
    for variable in variables_of(ends):
        if id(variable) in names:
            found.add(names[id(variable)])
        elif variable.grad_fn is None and not hasattr(variable, "number_of_product"):
            raise StepError("it reads a tensor that needs gradients and is not a parameter of the cell")
    return tuple(name for name in parameters if name in found)


def variables_of(ends: Sequence[Any]) -> Iterator[Any]:
    """Yield the tensors at which the autograd graph of ``ends`` begins."""
    nodes, seen = list(ends), set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        nodes += [following for following, _ in node.next_functions]


_OWN = set(vars(torch.nn.Module())) - {"training"}


def formula_key(cell: Any) -> Hashable:
    """Return what a cell's formula may depend on: its class, its parts, and their attributes and shapes."""
    return tuple(
        (
            name,
            type(module),
            _of_class(type(module)),
            tuple((key, plain(value)) for key, value in vars(module).items() if key not in _OWN),
            tuple((key, None if value is None else value.shape) for key, value in module._parameters.items()),
            tuple((key, None if value is None else value.requires_grad) for key, value in module._parameters.items()),
            tuple(
                (key, None if value is None else (value.shape, value.dtype)) for key, value in module._buffers.items()
            ),
        )
        for name, module in cell.named_modules()
    )


def _of_class(own: type) -> Hashable:
    """Return the methods and the attributes of a user's class; those of torch do not change."""
    bases = [each for each in own.__mro__ if not each.__module__.startswith(("torch.", "builtins"))]
    return tuple((key, plain(value)) for each in bases for key, value in vars(each).items() if not key.startswith("__"))


def _of_function(function: Any, seen: frozenset[Any]) -> Hashable:
    """Return the code of a function, and what it reads beside its arguments."""
    if function in seen:
        return None
    seen |= {function}
    cells = [each.cell_contents for each in function.__closure__ or () if _is_full(each)]
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    read = [(name, function.__globals__[name]) for name in names]
    return (
        function.__code__,
        plain(function.__defaults__, seen),
        tuple(plain(each, seen) for each in cells if not isinstance(each, type)),
        tuple(
            (name, plain(value, seen)) for name, value in read if isinstance(value, (*_PLAIN, *_SEVERAL, FunctionType))
        ),
    )


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class _Same:
    """An object that equals itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


_PLAIN = (bool, int, float, str, bytes, torch.dtype, torch.device)
_SEVERAL = (tuple, list, set, frozenset, dict, np.ndarray)


def plain(value: Any, seen: frozenset[Any] = frozenset()) -> Hashable:
    """Return a value by which an attribute is compared: what it consists of, or the object itself.

    Raises:
        StepError: changes of the value cannot be noticed.
    """
    if value is None or isinstance(value, (*_PLAIN, type)):
        return value
    if isinstance(value, (tuple, list)):
        return type(value), tuple(plain(each, seen) for each in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(plain(each, seen) for each in value)
    if isinstance(value, dict):
        return type(value), tuple((plain(key, seen), plain(each, seen)) for key, each in value.items())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, FunctionType):
        return _of_function(value, seen)
    if isinstance(value, (torch.Tensor, torch.nn.Module)) or callable(value):
        return _Same(value)
    if isinstance(value, (property, classmethod, staticmethod)):
        return plain(value.fget if isinstance(value, property) else value.__func__, seen)
    if hasattr(value, "__dict__") and not any(getattr(each, "__slots__", ()) for each in type(value).__mro__):
        return type(value), plain(vars(value), seen)
    raise StepError(f"it has a value of the type {type(value).__name__}, whose changes cannot be noticed")
