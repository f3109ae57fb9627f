"""What a cell is: the function that makes a node's state from its children's; and a cell that continues a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch

from treemem.errors import CellError
from treemem.schedule.schedule import GIVEN

State = dict[str, torch.Tensor]
"""What nodes hand to their parents, by name: tensors ``[m, ...]``, one entry a node."""

ProductInput = Callable[[State, torch.Tensor | None, State], torch.Tensor]
"""A formula of what a product multiplies; see :mod:`treemem.engines.product_input`."""


class LabelVectors(NamedTuple):
    """Features of inner rows that have one vector for each label.

    Attributes:
        label: int64 ``[inner rows]``.
        num_labels: labels are 0 to ``num_labels - 1``.
        width: of a vector.
        vectors: computes the vectors of labels, from ``[n]`` to ``[n, width]``.
    """

    label: torch.Tensor
    num_labels: int
    width: int
    vectors: Callable[[torch.Tensor], torch.Tensor]

    def of_labels(self) -> torch.Tensor:
        """The vectors of all labels, ``[labels, width]``."""
        return self.vectors(torch.arange(self.num_labels, device=self.label.device))


Features = torch.Tensor | LabelVectors | None
"""What inner rows read of their own: ``[inner rows, width]``, or vectors by label, or nothing."""


def feature_rows(features: Features) -> torch.Tensor | None:
    """Return one row for each inner row, ``[inner rows, width]``; None if they have no features."""
    return features.vectors(features.label) if isinstance(features, LabelVectors) else features


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
        inputs: a formula of what is multiplied, in plain torch.
        set_of_kind: which set of the stacked weights each kind uses; None where all use the only one.
        parts: sizes of the blocks of a row of the result, each as wide as ``h`` or 1; None: as many of the former as
            there is room for, then single ones.
    """

    name: str
    weights: str
    inputs: ProductInput
    set_of_kind: Mapping[int, int] | None
    parts: tuple[int, ...] | None = None


class SplitCell(Cell, Protocol):
    """A cell whose inner nodes are matrix products followed by a pointwise step: whole levels run at once.

    C++ is printed from the step and from the inputs of the products.

    In plain torch all kinds of a level and arity run together if the cell has ``forward_kinds`` and ``weights_of_sets``
    too, as those of this library do; else it is called once for each kind.
    """

    def products(self, arity: int) -> tuple[Product, ...]:
        """The matrix products of nodes with so many children, in order."""
        ...

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Stacked weights ``[sets, outputs, inputs]`` and biases ``[sets, outputs]`` by key, and what steps learn."""
        ...

    def step(self, products: State, children: State) -> State:
        """The pointwise rest, in plain torch.

        Args:
            products: results of the products by name, ``[m * copies, outputs]``.
            children: the children's states, ``[m, arity, ...]``.
        """
        ...


def leaf_products(cell: SplitCell) -> tuple[Product, ...]:
    """Return the products of leaves, if the cell has ``leaf_products``.

    In C++ leaves then run like a level of their own, by ``step``, which computes what :meth:`Cell.leaf` does.
    """
    products = getattr(cell, "leaf_products", None)
    return products() if callable(products) else ()


def runs_by(cell: Cell, method: str) -> bool:
    """Return whether ``cell`` may run by a method other than its call: it has it, and no forward hooks."""
    function = getattr(cell, method, None)
    owner = getattr(function, "__self__", cell)  # another object if the cell delegates to one
    hooked = getattr(owner, "_forward_hooks", None) or getattr(owner, "_forward_pre_hooks", None)
    return callable(function) and not hooked


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


class GivenRows:
    """A cell whose leaves of the kind ``GIVEN`` have the states of rows that were run before.

    Args:
        cell: runs all other rows.
        states: of the given rows, ``[given rows, ...]``.

    Attributes:
        cell: as given.
    """

    def __init__(self, cell: Cell, states: State) -> None:
        self.cell = cell
        self._states = states

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The states of ``m`` leaves, or of all given rows."""
        return self._states if kind == GIVEN else self.cell.leaf(x, kind)

    def __call__(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The states of ``m`` inner nodes."""
        return self.cell(children, x, kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cell, name)


def cell_name(cell: Cell) -> str:
    """What messages call ``cell``: its class, or that of the downward cell that it stands for."""
    return type(getattr(cell, "downward", cell)).__name__


def _at_least_single(value: torch.Tensor) -> torch.Tensor:
    """``value`` in float32 where autocast made it shorter: states add up over a whole tree."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) and _autocast_on(value) else value


def _autocast_on(value: torch.Tensor) -> bool:
    return torch.is_autocast_enabled(value.device.type)


def _shown(value: object) -> str:
    return "an empty dict" if value == {} else type(value).__name__
