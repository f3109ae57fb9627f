"""The printed formula of a cell: found once for a formula, and compiled once for a text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
import torch

from treemem.engines.cell import Product, State
from treemem.engines.printer.cpp import cpp_source
from treemem.engines.printer.program import bases_read
from treemem.engines.printer.symbolic import StepError
from treemem.engines.printer.trace import (
    Step,
    StepProgram,
    StepShape,
    function_of_features,
    trace_step,
    unnoticed,
)
from treemem.errors import CellError
from treemem.native import Printed

T = TypeVar("T")
_MOST_LINES = 2000  # which compile in some 10 seconds


@dataclass(frozen=True)
class PrintedProduct:
    """A matrix product of a cell.

    Attributes:
        copies: rows of inputs a node.
        from_below: how many of a row of inputs come first that depend on more than the node's own features.
        is_read: whether the inputs of a later product depend on the result.
        of_features: computes the other inputs, ``[rows * copies, inputs - from_below]``, from features, in torch.
    """

    copies: int
    from_below: int
    is_read: bool
    of_features: Callable[[torch.Tensor], torch.Tensor] = field(compare=False)


@dataclass(frozen=True)
class PrintedCell:
    """What nodes of one arity compute.

    Attributes:
        source: what is compiled: functions that make the inputs of the products, and the step.
        gathers, step: the programs that it is printed from.
        products: in order.
        learned: names of the cell's parameters and buffers that it reads beside the weights of products.
        dropouts: rate and number of factors a row of each dropout.
        reads_products_of_features: whether it reads the node's own features only in inputs of products that depend on
            nothing else, so that equal features have equal products.
    """

    source: Printed
    gathers: tuple[StepProgram, ...] = field(compare=False)
    step: StepProgram = field(compare=False)
    products: tuple[PrintedProduct, ...]
    learned: tuple[str, ...]
    dropouts: tuple[tuple[float, int], ...]
    reads_products_of_features: bool


def printed(
    name: str,
    formula: Callable[[int | None], Step],
    shape: StepShape,
    inputs: Sequence[tuple[int, int]],
    learned: tuple[str, ...],
) -> PrintedCell:
    """Return a formula in C++.

    Args:
        name: of the cell.
        formula: what gives the inputs of a product, by its number, or the states, for None; see
            :func:`treemem.engines.printer.trace.trace_step`.
        shape: of what the step reads and writes.
        inputs: rows a node, and width, of the inputs of each product.
        learned: names of the parameters that it reads.

    Raises:
        StepError: it cannot be printed.
    """
    names, gathers, of_inputs = list(shape.products), [], []
    is_pure = True
    for at, (copies, width) in enumerate(inputs):
        before = dict(list(shape.products.items())[:at])
        shape_before = replace(shape, products=before, kept_products=names)
        gather, parts = _gather(formula(at), shape_before, copies, width)
        last = [
            number % len(parts) + 1
            for number, node in enumerate(gather.forward.values())
            if not bases_read([node]) <= {"features", "mask"}
        ]
        gathers.append(gather)
        first = max(last, default=0)  # of the parts that depend on features alone
        alone = [node for number, node in enumerate(gather.forward.values()) if number % len(parts) >= first]
        of_inputs.append((sum(parts[:first]), function_of_features(alone, parts[first:], shape)))
        for number, node in enumerate(gather.forward.values()):
            is_pure &= ("mask" if number % len(parts) >= first else "features") not in bases_read([node])
    read = bases_read(node for pair in gathers for node in (*pair.forward.values(), *pair.backward.values()))
    is_read = [f"product{at}" in read for at in range(len(names))]
    step = trace_step(formula(None), replace(shape, kept_products=[*compress(names, is_read)]))
    is_pure &= "features" not in bases_read((*step.forward.values(), *step.backward.values()))
    text = cpp_source(step, gathers)
    lines = text.count("\n")
    if lines > _MOST_LINES:
        raise StepError(f"it has {lines} lines in C++ for {shape.arity} children, too many to compile")
    products = [
        PrintedProduct(copies, below, reads, of_features)
        for (copies, _), (below, of_features), reads in zip(inputs, of_inputs, is_read, strict=True)
    ]
    return PrintedCell(Printed(name, text), tuple(gathers), step, tuple(products), learned, step.dropouts, is_pure)


def _gather(formula: Step, shape: StepShape, copies: int, width: int) -> tuple[StepProgram, tuple[int, ...]]:
    """The program, and the parts of a row of inputs: vectors and then numbers, or the other way round."""
    vectors, numbers = (shape.D,) * (width // shape.D), (1,) * (width % shape.D)
    parts = (*vectors, *numbers)
    try:
        return trace_step(formula, replace(shape, inputs=(copies, parts))), parts
    except StepError:
        if not numbers:
            raise
        parts = (*numbers, *vectors)
        return trace_step(formula, replace(shape, inputs=(copies, parts))), parts


_printed: dict[Hashable, Any] = {}


def cached_formula(key: Hashable, make: Callable[[], T]) -> T:
    """Return what ``make`` gives, or raise its error; it is called once for a key.

    Raises:
        StepError: a formula cannot be printed.
        CellError: a cell returns states that are not what the protocol says.
    """
    if key not in _printed:
        try:
            _printed[key] = make()
        except StepError as error:
            _printed[key] = error
        except CellError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            _printed[key] = StepError(f"it fails on rows of random numbers: {error}")  # or under autograd, with a word
    known = _printed[key]
    if isinstance(known, StepError):
        raise known
    return cast(T, known)


def print_split(
    cell: Any,
    arity: int,
    products: Sequence[Product],
    widths: Mapping[str, int],
    states: Mapping[str, tuple[int, ...]],
    features: int | None,
) -> PrintedCell:
    """Return the formula of a cell in the split form.

    Args:
        cell: the cell.
        arity: number of children.
        products: of such nodes.
        widths: outputs of each product.
        states: shape of each state of a node.
        features: width of what a node reads of its own; None if nothing.

    Raises:
        StepError: it cannot be printed.
    """
    module, parameters = _Split(cell, products, widths), tensors_of(cell)
    like = next(iter(parameters.values()), torch.empty(0))
    with unnoticed():
        children = {name: like.new_zeros(1, arity, *size) for name, size in states.items()}
        x = None if features is None else like.new_zeros(1, features)
        named = {f"cell.{name}": value.detach().requires_grad_() for name, value in parameters.items()}
        outputs = torch.func.functional_call(module, named, (None, {}, children, x))
    ends = [tensor.grad_fn for tensor in (*module.inputs, *outputs.values())]
    learned = learned_by(ends, {name: named[f"cell.{name}"] for name in parameters})

    def formula(until: int | None) -> Step:
        def run(given: State, children: State, *rest: torch.Tensor) -> State:
            x, tensors = (None, rest) if features is None else (rest[0], rest[1:])
            named = {f"cell.{name}": value for name, value in zip(learned, tensors, strict=True)}
            return torch.func.functional_call(module, named, (until, given, children, x))

        return run

    D = next(iter(states.values()))[-1]
    inputs = [(len(tensor), tensor.shape[1]) for tensor in module.inputs]
    of_products = {
        product.name: (copies, tuple(product.parts or parts_of(D, widths[product.name])))
        for product, (copies, _) in zip(products, inputs, strict=True)
    }
    shape = StepShape(arity, D, of_products, states, [tuple(parameters[name].shape) for name in learned])
    return printed(type(cell).__name__, formula, replace(shape, features=features), inputs, learned)


class _Split(torch.nn.Module):
    """A cell in the split form as a module, for ``functional_call``."""

    def __init__(self, cell: Any, products: Sequence[Product], widths: Mapping[str, int]) -> None:
        super().__init__()
        self.cell, self._products, self._widths = cell, products, widths

    def forward(self, until: int | None, given: State, children: State, x: torch.Tensor | None) -> State:
        """The inputs of a product, or the states; products that are not given are 0."""
        results: State = {}
        self.inputs: list[torch.Tensor] = []
        for number, product in enumerate(self._products):
            inputs = product.inputs(children, x, results)
            if number == until:
                return {"inputs": inputs}
            self.inputs.append(inputs)
            nothing = inputs.new_zeros(len(inputs), self._widths[product.name])
            results[product.name] = given.get(product.name, nothing)
        result: State = self.cell.step(results, children)
        return result


def parts_of(D: int, width: int) -> list[int]:
    """Return sizes of the parts of a row: vectors, and then single numbers."""
    return [D] * (width // D) + [1] * (width % D)


def tensors_of(cell: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return what a formula may read: parameters, and buffers of the same kind."""
    named = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
    return {name: value for name, value in named.items() if value.is_floating_point()}


def parameter_of(cell: torch.nn.Module, name: str) -> torch.Tensor:
    """Return a parameter by its name, or the tensor that ``functional_call`` has put in its place."""
    parameter: Any = cell
    for part in name.split("."):
        parameter = getattr(parameter, part)
    return parameter


def learned_by(ends: Sequence[Any], parameters: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Return the names of the tensors that a formula reads.

    Args:
        ends: of its autograd graph.
        parameters: of the cell, and its buffers; all want gradients.

    Raises:
        StepError: it reads a tensor that needs gradients and is not a parameter of the cell.
    """
    names = {id(value): name for name, value in parameters.items()}
    learned: set[str] = set()
    for variable in variables_of(ends):
        if id(variable) in names:
            learned.add(names[id(variable)])
        elif variable.grad_fn is None and not hasattr(variable, "number_of_product"):
            raise StepError("it reads a tensor that needs gradients and is not a parameter of the cell")
    return tuple(name for name in parameters if name in learned)


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


def _of_class(cls: type) -> Hashable:
    """Return the methods and the attributes of a user's class; those of torch do not change."""
    bases = [base for base in cls.__mro__ if not base.__module__.startswith(("torch.", "builtins"))]
    attributes = ((key, value) for base in bases for key, value in vars(base).items())
    return tuple((key, plain(value)) for key, value in attributes if not key.startswith(("__", "_abc_")))


def _of_function(function: Any, seen: frozenset[Any]) -> Hashable:
    """Return the code of a function, and what it reads beside its arguments."""
    if function in seen:
        return None
    seen |= {function}
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    read = [(name, function.__globals__[name]) for name in names]
    return (
        function.__code__,
        plain(function.__defaults__, seen),
        tuple(plain(cell, seen) for cell in cells if not isinstance(cell, type)),
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
        return type(value), tuple(plain(item, seen) for item in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(plain(item, seen) for item in value)
    if isinstance(value, dict):
        return type(value), tuple((plain(key, seen), plain(item, seen)) for key, item in value.items())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, FunctionType):
        return _of_function(value, seen)
    if isinstance(value, (torch.Tensor, torch.nn.Module)) or callable(value):
        return _Same(value)
    if isinstance(value, (property, classmethod, staticmethod)):
        return plain(value.fget if isinstance(value, property) else value.__func__, seen)
    if hasattr(value, "__dict__") and not any(getattr(base, "__slots__", ()) for base in type(value).__mro__):
        return type(value), plain(vars(value), seen)
    raise StepError(f"it has a value of the type {type(value).__name__}, whose changes cannot be noticed")
