"""What a cell is: the function that makes a node's state from its children's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from treemem.errors import CellError
from treemem.ops.children import Children
from treemem.ops.product_input import HiddenLayer, ProductInput

State = dict[str, torch.Tensor]
"""What nodes hand to their parents, by name: tensors ``[m, ...]``, one entry a node."""


class Cell(Protocol):
    """A composition function; users write their own as an ``nn.Module`` with these two methods.

    One kind and one arity a call, ``m`` nodes at a time. Every state has the same names and, but for ``m``, the same
    shapes, whichever method and kind made it.
    """

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The states of ``m`` leaves from their inputs ``x`` (``[m, input_size]``; ``[m, 0]`` where there are none)."""
        ...

    def __call__(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The states of ``m`` inner nodes.

        Args:
            children: the children's states, ``[m, arity, ...]``.
            x: the nodes' own features, ``[m, input_size]``, or the embeddings of their labels; None where inner nodes
                read neither.
            kind: the kind of all ``m`` nodes.
        """
        ...

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Every tensor that the cell learns."""
        ...


class Product(NamedTuple):
    """One matrix product that nodes of one arity need before their step; those of arity 0 read features alone.

    Attributes:
        name: the step finds the result under it, ``[m * copies, outputs]``.
        weights: key into the cell's ``weights()``.
        source: what is multiplied; a product that a hidden layer reads comes before it, and the step leaves it alone.
        set_of_kind: which set of the stacked weights each kind uses; None where all use the only one.
        dropout: probability that an entry of what is multiplied is dropped.
    """

    name: str
    weights: str
    source: ProductInput | HiddenLayer
    set_of_kind: Mapping[int, int] | None
    dropout: float = 0.0


Memo = torch.Tensor | None
"""What ``forward`` of a step pair hands to ``backward``, such as a dropout mask."""


class StepPair(Protocol):
    """The pointwise rest of a split cell for rows of one level and one arity, forwards and backwards.

    ``forward`` may overwrite the products with what ``backward`` needs, and ``backward`` overwrites them with their
    gradients, so that a product's memory is that of its gradient too.

    Attributes:
        kept: what ``forward`` writes for ``backward`` beside the products: name to the shape of one row.
    """

    kept: Mapping[str, tuple[int, ...]] = {}

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Any:
        """Write the new states into ``out``; what is returned is handed to ``backward``.

        Args:
            products: results of the matrix products, ``[m * copies, outputs]``.
            children: the children's states, ``[m, arity, ...]``.
            out: where the states go, ``[m, ...]``.
            kept: where the rows for ``backward`` go; None where there will be no backward pass.
        """
        ...

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Any, gradient: State
    ) -> State:
        """Overwrite the products with their gradients and return the gradients of the children's states.

        A product that a hidden layer reads is left alone.

        Args:
            products, children, kept: as ``forward`` left them.
            states: what ``forward`` wrote, ``[m, ...]``.
            memo: what ``forward`` returned.
            gradient: of the states, ``[m, ...]``; may be overwritten.
        """
        ...


@runtime_checkable
class LearnedStepPair(StepPair, Protocol):
    """A step pair that learns too, as a layer norm does; it is made with the tensors that ``weights()`` has then.

    Attributes:
        learned: key into the cell's ``weights()`` of the two tensors that the step reads.
    """

    learned: str

    def learned_gradients(self, kept: State, gradient: State) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of the two tensors, for all rows of the arity at once.

        Args:
            kept: what ``forward`` kept, ``[rows, ...]``.
            gradient: of the states, ``[rows, ...]``, as ``backward`` left it.
        """
        ...


class SplitCell(Cell, Protocol):
    """A cell whose inner nodes are matrix products followed by a pointwise step, so that a whole level runs at once."""

    def products(self, arity: int) -> tuple[Product, ...]:
        """The matrix products of nodes with so many children, in order."""
        ...

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Stacked weights ``[sets, outputs, inputs]`` and biases ``[sets, outputs]`` by key, and what steps learn."""
        ...

    def step_pair(self, arity: int) -> StepPair:
        """The pointwise rest for nodes with so many children."""
        ...


def leaf_products(cell: SplitCell) -> tuple[Product, ...]:
    """Return the products of leaves, if the cell has ``leaf_products``.

    Leaves then run like a level of their own, by ``step_pair(0)``, which must compute what :meth:`Cell.leaf` does.
    """
    products = getattr(cell, "leaf_products", None)
    return products() if callable(products) else ()


def is_split(cell: Cell) -> bool:
    """Return whether ``cell`` offers the split form and has no forward hooks, which would not fire."""
    forward_kinds = getattr(cell, "forward_kinds", None)
    owner = getattr(forward_kinds, "__self__", cell)  # another object if the cell delegates to one
    hooked = getattr(owner, "_forward_hooks", None) or getattr(owner, "_forward_pre_hooks", None)
    return callable(forward_kinds) and not hooked


def check_cell(cell: object) -> None:
    """Make sure that ``cell`` has what the protocol asks for.

    Raises:
        CellError: it has not; the message names what is missing.
    """
    needed = "a cell is an nn.Module with leaf(x, kind) and forward(children, x, kind)"
    if isinstance(cell, type):
        raise CellError(f"the cell is the class {cell.__name__} itself; make an instance of it: {needed}")
    missing = [name for name in ("leaf", "parameters") if not callable(getattr(cell, name, None))]
    unset = torch.nn.Module.forward
    if not callable(cell) or getattr(getattr(cell, "forward", None), "__func__", None) is unset:
        missing.insert(0, "forward")
    if missing:
        raise CellError(f"the cell {type(cell).__name__} has no {' and no '.join(missing)}; {needed}")


def leaf_states(cell: Cell, leaf_inputs: torch.Tensor, segments: list[tuple[int, int, int]]) -> State:
    """The states of all leaf rows, in plain autograd.

    Args:
        cell: the cell.
        leaf_inputs: ``[leaf rows, input_size]``.
        segments: ``(begin, end, kind)`` of the leaf rows, in order; if there are none, the cell gets an empty input.

    Raises:
        CellError: states that are not what the protocol says.
    """
    parts = [
        checked_state(cell.leaf(leaf_inputs[begin:end], kind), None, end - begin, cell, f"leaf(x, {kind})")
        for begin, end, kind in segments or [(0, 0, 0)]
    ]
    for part, (_, _, kind) in zip(parts[1:], segments[1:], strict=True):
        checked_state(part, parts[0], len(next(iter(part.values()))), cell, f"leaf(x, {kind})")
    if len(parts) == 1:
        return parts[0]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def checked_state(state: object, like: State | None, rows: int, cell: Cell, call: str) -> State:
    """``state`` if it is what the protocol says, in the precision of ``like``.

    Args:
        state: what a cell returned.
        like: a state with the right names, shapes (but for the number of rows) and precision; None for the first.
        rows: number of nodes it must describe.
        cell, call: who returned it, for the message.

    Raises:
        CellError: it is not.
    """
    who = f"{cell_name(cell)}.{call}"
    if not isinstance(state, dict) or not state:
        raise CellError(f"{who} must return a dict of tensors, not {_shown(state)}")
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise CellError(f"{who}: state {name!r} must be a tensor, not {_shown(value)}")
        if value.dim() == 0 or len(value) != rows:
            raise CellError(f"{who}: state {name!r} has shape {list(value.shape)}; its first size must be {rows}")
    if like is None:
        return {name: _at_least_single(value) for name, value in state.items()}
    if state.keys() != like.keys():
        raise CellError(f"{who} returned the states {sorted(state)}; the leaves have {sorted(like)}")
    for name, value in state.items():
        if value.shape[1:] != like[name].shape[1:]:
            expected = ", ".join(str(size) for size in (rows, *like[name].shape[1:]))
            raise CellError(f"{who}: state {name!r} has shape {list(value.shape)}; it must be [{expected}]")
    return {name: value.to(like[name].dtype) for name, value in state.items()}


def cell_name(cell: Cell) -> str:
    """What messages call ``cell``: its class, or that of the downward cell that it stands for."""
    return type(getattr(cell, "turned", cell)).__name__


def has_gradients(value: torch.Tensor) -> bool:
    """Whether a tensor of this type can have gradients."""
    return value.is_floating_point() or value.is_complex()


def foreign_tensor(values: Iterable[torch.Tensor], known: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return a learned tensor that values were made with and that is not known; None if there is none."""
    own = {id(tensor) for tensor in known}
    waiting = [value.grad_fn for value in values]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in own:
            return variable
        waiting.extend(following for following, _ in node.next_functions)
    return None


def _at_least_single(value: torch.Tensor) -> torch.Tensor:
    """``value`` in float32 where autocast made it shorter: states add up over a whole tree."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) and _autocast_on(value) else value


def _autocast_on(value: torch.Tensor) -> bool:
    return torch.is_autocast_enabled(value.device.type)


def _shown(value: object) -> str:
    return "an empty dict" if value == {} else type(value).__name__
