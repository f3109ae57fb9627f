"""From a step in plain torch to programs for one row, forward and backward.

The step and its vector-Jacobian product run once, on symbols. What they leave in memory are the programs. They are run
on random numbers, and must give what the step and autograd give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from treemem.engines.printer.operations import OPERATIONS
from treemem.engines.printer.program import Node, Place, Program, evaluated, in_order
from treemem.engines.printer.symbolic import StepError, SymbolicRun, Symbols, note_line

State = dict[str, torch.Tensor]
Step = Callable[..., State]

ADDED = ("d_child", "d_learned", "d_features")
"""Gradients that a step adds to; it sets all others."""


@dataclass(frozen=True)
class StepShape:
    """What a step reads and writes of one row.

    Attributes:
        arity: number of children.
        D: width of a vector.
        products: copies, and sizes of the parts, of each product by name; a part has D numbers, or one.
        states: shape of each state by name.
        learned: shapes of the tensors that it reads beside, the same for all rows.
        kept_products: names of products that other products read: the step does not replace them.
        features: width of what the row reads of its own; None if nothing.
        inputs: copies, and sizes of the parts, of what the formula returns as ``inputs`` in the place of states: what a
            product multiplies. None for a step.
    """

    arity: int
    D: int
    products: Mapping[str, tuple[int, tuple[int, ...]]]
    states: Mapping[str, tuple[int, ...]]
    learned: Sequence[tuple[int, ...]] = ()
    kept_products: Sequence[str] = ()
    features: int | None = None
    inputs: tuple[int, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class StepProgram:
    """What is printed.

    Attributes:
        shape: of the step.
        forward, backward: what is stored where.
        kept: values that the forward pass leaves in the place of a product, for the backward pass.
        dropouts: rate, and number of factors a row, of each dropout; the factors are side by side in ``mask``.
    """

    shape: StepShape
    forward: dict[Place, Node]
    backward: dict[Place, Node]
    kept: dict[Place, Node]
    dropouts: tuple[tuple[float, int], ...]


class _Leaf(NamedTuple):
    """A tensor that a step reads: where each entry of a row is, and at which position of a vector."""

    shape: tuple[int, ...]
    places: list[tuple[Place, int | None]]
    is_shared: bool = False  # by all rows


@contextmanager
def unnoticed() -> Iterator[None]:
    """A block that draws random numbers and runs autograd without a trace: neither seeds nor checkpoints notice it."""
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad(), hooks:
        yield


def trace_step(step: Step, shape: StepShape) -> StepProgram:
    """Return the programs of ``step(products, children, *learned)``.

    Args:
        step: gets products ``[m * copies, width]`` and children ``[m, arity, ...]`` by name, returns states.
        shape: of what it reads and writes.

    Raises:
        StepError: it cannot be printed; the message says why.
    """
    with unnoticed():
        torch.manual_seed(0)
        return _traced(step, shape)


def _traced(step: Step, shape: StepShape) -> StepProgram:
    program = Program()
    run = SymbolicRun(program, shape.D)
    leaves, dropouts = _leaves(step, shape)
    outputs = [_leaf(f"state{at}", (1, *size), shape.D) for at, size in enumerate(shape.states.values())]
    if shape.inputs is not None:
        copies, parts = shape.inputs
        outputs = [_leaf("inputs", (copies, sum(parts)), shape.D, parts)]
    incoming = [_gradients(output) for output in outputs]
    masks = [mask for mask in leaves if _base(mask) == "mask"]
    leaves = leaves[: len(leaves) - len(masks)]

    def joint(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaf_tensors, rest = tensors[: len(leaves)], tensors[len(leaves) :]
        gradients, factors = rest[: len(outputs)], rest[len(outputs) :]
        with _Dropouts(list(factors)):
            states = _call(step, shape, leaf_tensors)
        reached = [(value, d) for value, d in zip(states, gradients, strict=True) if value.requires_grad]
        wanted = torch.autograd.grad(
            [value for value, _ in reached], leaf_tensors, [d for _, d in reached], allow_unused=True
        )  # fmt: skip
        return *states, *(torch.zeros_like(x) if d is None else d for x, d in zip(leaf_tensors, wanted, strict=True))

    inputs = [*leaves, *incoming, *masks]
    given = [_random(entry, 1, at < len(leaves)) for at, entry in enumerate(inputs)]
    for tensor, leaf in zip(given, inputs, strict=True):
        run.know(tensor, run.symbols_of_places([leaf.places]).reshape(leaf.shape))
    with run:
        results = joint(*given)
    gradients = [_gradients(entry) for entry in leaves]
    stored = [
        _stored(run, run.symbols(result), entry) for result, entry in zip(results, [*outputs, *gradients], strict=True)
    ]
    forward = {place: node for of_output in stored[: len(outputs)] for place, node in of_output.items()}
    backward = {place: node for of_gradient in stored[len(outputs) :] for place, node in of_gradient.items()}
    _check(joint, inputs, [*outputs, *gradients], forward | backward, shape.D)
    if shape.inputs is not None:  # what it adds to the gradients of products may be nothing
        backward = {place: node for place, node in backward.items() if node.value != 0}
    others_read = {f"product{at}" for at, name in enumerate(shape.products) if name in shape.kept_products}
    return _with_kept(program, StepProgram(shape, forward, backward, {}, dropouts), others_read)


def _leaves(step: Step, shape: StepShape) -> tuple[list[_Leaf], tuple[tuple[float, int], ...]]:
    """What the step reads: products, children, features, learned tensors, and the factors of its dropouts."""
    leaves = [
        _leaf(f"product{at}", (copies, sum(parts)), shape.D, parts)
        for at, (copies, parts) in enumerate(shape.products.values())
    ]
    for at, size in enumerate(shape.states.values()):
        leaves += [_leaf(f"child{at}_{k}", (1, 1, *size), shape.D) for k in range(shape.arity)]
    if shape.features is not None:
        leaves.append(_leaf("features", (1, shape.features), shape.D))
    vectors = numbers = 0
    for size in shape.learned:
        leaves.append(_leaf("learned", size, shape.D, start=(vectors, numbers))._replace(is_shared=True))
        vectors, numbers = _end(leaves[-1], vectors, numbers)
    with _Dropouts(None) as counted:
        _call(step, shape, [_random(leaf, 1, False) for leaf in leaves])
    vectors = numbers = 0
    for _, size in counted.found:
        leaves.append(_leaf("mask", size, shape.D, start=(vectors, numbers)))
        vectors, numbers = _end(leaves[-1], vectors, numbers)
    return leaves, tuple((rate, math.prod(size)) for rate, size in counted.found)


def _call(step: Step, shape: StepShape, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    rest = list(tensors)
    products = {name: rest.pop(0) for name in shape.products}
    rows = len(tensors[0]) // next((copies for copies, _ in shape.products.values()), 1)
    children: State = {}
    for name, size in shape.states.items():
        of_children = [rest.pop(0) for _ in range(shape.arity)]
        children[name] = torch.cat(of_children, 1) if of_children else tensors[0].new_zeros(rows, 0, *size)
    states = step(products, children, *rest)
    return [states[name] for name in (shape.states if shape.inputs is None else ["inputs"])]


class _Dropouts(TorchFunctionMode):
    """In the place of dropouts: products with given factors; without factors, their rates and shapes are noted."""

    def __init__(self, factors: list[torch.Tensor] | None) -> None:
        super().__init__()
        self._factors = factors
        self.found: list[tuple[float, tuple[int, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.dropout:
            result = func(*args, **(kwargs or {}))
            note_line(result)
            return result
        x, rate, training = _dropout_arguments(*args, **(kwargs or {}))
        if not training or not rate:
            return x
        if self._factors is None:
            self.found.append((rate, tuple(x.shape)))
            return x
        return x * self._factors.pop(0)


def _dropout_arguments(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return input, p, training


def _leaf(
    base: str, shape: tuple[int, ...], D: int, parts: Sequence[int] | None = None, start: tuple[int, int] = (0, 0)
) -> _Leaf:
    """The leaf at ``base``. By default a row consists of vectors of D numbers, and then of single ones."""
    vectors, numbers = start
    places: list[tuple[Place, int | None]] = []
    width = shape[-1] if shape else 1
    for _ in range(math.prod(shape[:-1])):
        for size in parts or [D] * (width // D) + [1] * (width % D):
            is_vector = size == D
            place = Place(base, vectors, numbers, is_vector)
            places += [(place, at) for at in range(D)] if is_vector else [(place, None)]
            vectors, numbers = (vectors + 1, numbers) if is_vector else (vectors, numbers + 1)
    return _Leaf(shape, places)


def _columns(leaf: _Leaf) -> dict[Place, list[int]]:
    """Which entries of the tensor are at each place, in order of their positions."""
    columns: dict[Place, list[int]] = {}
    for column, (place, _) in enumerate(leaf.places):
        columns.setdefault(place, []).append(column)
    return columns


def _end(leaf: _Leaf, vectors: int, numbers: int) -> tuple[int, int]:
    distinct = {place for place, _ in leaf.places}
    return vectors + sum(node.is_vector for node in distinct), numbers + sum(not node.is_vector for node in distinct)


def _gradients(leaf: _Leaf) -> _Leaf:
    places = [(place._replace(base=f"d_{place.base}"), at) for place, at in leaf.places]
    return _Leaf(leaf.shape, places, leaf.is_shared)


def _base(leaf: _Leaf) -> str:
    return leaf.places[0][0].base if leaf.places else ""


def _random(leaf: _Leaf, rows: int, wanted: bool) -> torch.Tensor:
    shape = leaf.shape if leaf.is_shared or not leaf.shape else (rows * leaf.shape[0], *leaf.shape[1:])
    return torch.randn(shape, dtype=torch.float64).requires_grad_(wanted)


def _stored(run: SymbolicRun, symbols: Symbols, leaf: _Leaf) -> dict[Place, Node]:
    """What is stored at each place.

    Raises:
        StepError: the positions of a vector are not computed alike.
    """
    stored: dict[Place, Node] = {}
    for place, columns in _columns(leaf).items():
        entries = symbols.ravel()[columns]
        position, node = run.positions(entries), run.node(entries[0])
        if (entries - position != entries[0] - position[0]).any() or (
            position * (position - 1 - np.arange(len(entries)))
        ).any():
            raise StepError("the positions of a state are not computed alike")
        stored[place] = node
        if node.is_vector and not place.is_vector:
            raise StepError("a number for the row depends on one position of a state")
    if leaf.places and leaf.places[0][0].base.startswith(ADDED):
        return {place: node for place, node in stored.items() if node.value != 0}
    return stored


def _check(joint: Any, inputs: Sequence[_Leaf], results: Sequence[_Leaf], stored: dict[Place, Node], D: int) -> None:
    """Compare the programs with the step and with autograd, on several rows of normal numbers.

    Raises:
        StepError: they differ.
    """
    rows = 3
    given = [_random(entry, rows, not _base(entry).startswith("d_")) for entry in inputs]
    memory: dict[Place, torch.Tensor] = {}
    for tensor, leaf in zip(given, inputs, strict=True):
        flat = tensor.detach().reshape(1 if leaf.is_shared else rows, -1)
        memory |= {place: flat[:, columns] for place, columns in _columns(leaf).items()}
    values = evaluated(stored.values(), memory, D)
    expected = joint(*given)
    for tensor, leaf in zip(expected, results, strict=True):
        flat = tensor.detach().reshape(1 if leaf.is_shared else rows, -1)
        computed = torch.zeros(rows, flat.shape[1], dtype=torch.float64)
        for place, columns in _columns(leaf).items():
            if place in stored:
                computed[:, columns] = values[stored[place]]
        computed = computed.sum(0, keepdim=True) if leaf.is_shared else computed
        if not torch.allclose(computed, flat, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise StepError("a row does not depend on its own inputs alone, or the step is not the same each time")


def function_of_features(
    nodes: Sequence[Node], parts: Sequence[int], shape: StepShape
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what computes nodes that depend on the features of rows alone, in torch.

    Args:
        nodes: one for each part of each copy.
        parts: their sizes.
        shape: of the step.

    Returns:
        A function from ``[rows, width]`` to ``[rows * copies, sum of parts]``.
    """
    columns = _columns(_leaf("features", (1, shape.features or 0), shape.D))
    sizes = [*parts] * (len(nodes) // max(1, len(parts)))
    loaded = [columns[node.args[0]] for node in nodes if node.op == "load"]
    is_whole = len(loaded) == len(nodes) == len(parts) and [*chain(*loaded)] == [*range(shape.features or 0)]

    def run(features: torch.Tensor) -> torch.Tensor:
        if is_whole:
            return features
        memory = {place: features[:, numbers[0] : numbers[-1] + 1] for place, numbers in columns.items()}
        values = evaluated(nodes, memory, shape.D)
        vectors = [values[node].expand(len(features), size) for node, size in zip(nodes, sizes, strict=True)]
        return torch.cat(vectors, 1).view(-1, sum(parts)).to(features.dtype)

    return run


def _with_kept(program: Program, step: StepProgram, others_read: set[str]) -> StepProgram:
    """Let the backward pass read the states, and values that take the place of products that only they use."""
    users: dict[Node, set[Node]] = {}
    for node in in_order([*step.forward.values(), *step.backward.values()]):
        for operand in node.operands:
            users.setdefault(operand, set()).add(node)
    stored = {*step.forward.values(), *step.backward.values()}
    kept: dict[Place, Node] = {}
    replaced: dict[Node, Node] = {}
    for node, readers in users.items():
        place = node.args[0] if node.op == "load" else None
        if place is None or not place.base.startswith("product") or place.base in others_read:
            continue
        if len(readers) == 1 and node not in stored:
            (user,) = readers
            if user.op in OPERATIONS and OPERATIONS[user.op].inverts:
                kept[place] = user
                replaced[user] = program.load(_kept(place))
    for place, node in step.forward.items():
        if place.base.startswith("state") and node not in replaced and node.operands:
            replaced[node] = program.load(place)
    backward = dict(zip(step.backward, program.rewritten(step.backward.values(), replaced), strict=True))
    needed = {node.args[0] for node in in_order(backward.values()) if node.op == "load"}
    kept = {place: node for place, node in kept.items() if _kept(place) in needed}
    replaced = {node: program.load(_kept(place)) for place, node in kept.items()}
    forward = dict(zip(step.forward, program.rewritten(step.forward.values(), replaced), strict=True))
    return replace(step, forward=forward, backward=backward, kept=kept)


def _kept(place: Place) -> Place:
    return place._replace(base=f"kept_{place.base}")
