"""Passes from the roots to the leaves: each node's state from its parent's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import torch

from treemem.engines.cell import Cell, State
from treemem.engines.propagate import Engine, NodeStates, propagate
from treemem.errors import CellError, quoted
from treemem.schedule.reversed_batch import nodes_of_roots, num_kinds_of, reversed_batch
from treemem.schedule.tree_batch import TreeBatch

Direction = Literal["up", "down", "both"]


class DownwardCell(Protocol):
    """How states go down; users write their own as an ``nn.Module`` with these two methods.

    One kind and one position a call, ``m`` nodes at a time. Every state has the same names and, but for ``m``, the same
    shapes, whichever method, kind and position made it.
    """

    def root(self, x: torch.Tensor, kind: int) -> State:
        """The states of ``m`` roots from their inputs ``x``, ``[m, input_size]``."""
        ...

    def __call__(self, parent: State, x: torch.Tensor, position: int, kind: int) -> State:
        """The states of ``m`` nodes below others.

        Args:
            parent: the parents' states, ``[m, ...]``.
            x: the nodes' own inputs, ``[m, input_size]``.
            position: the place of all ``m`` nodes among their siblings, from 0.
            kind: the kind of all ``m`` nodes.
        """
        ...

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Every tensor that the cell learns."""
        ...


class ReversedCell(torch.nn.Module):
    """A downward cell as a cell over reversed trees, where the only child of a node is its parent.

    Args:
        cell: the downward cell.
        num_kinds: number of kinds; a kind of the reversed batch is ``position * num_kinds + kind``.

    Attributes:
        downward: the downward cell.
    """

    def __init__(self, cell: DownwardCell, num_kinds: int) -> None:
        super().__init__()
        self.downward = cell
        self._num_kinds = num_kinds

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The states of roots."""
        return self.downward.root(x, kind)

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The states of nodes below others."""
        assert x is not None
        position, own_kind = divmod(kind, self._num_kinds)
        return self.downward({name: value[:, 0] for name, value in children.items()}, x, position, own_kind)


def propagate_down(
    cell: DownwardCell | Cell, batch: TreeBatch, inputs: torch.Tensor, *, engine: Engine = "auto"
) -> NodeStates:
    """The states of every node, from the roots to the leaves, on the engines of :func:`treemem.ops.propagate`.

    Args:
        cell: how states go down; a cell in the split form is one over reversed trees, whose kinds are positions.
        batch: the trees.
        inputs: what each node reads, ``[nodes, input_size]``, in node order.
        engine: how to run.

    Raises:
        GraphError: a node with several parents.
        CellError: no such cell, or one that returned states that are not what the protocol says.
    """
    over_reversed = _is_over_reversed_trees(cell)
    downwards = reversed_batch(batch, by_kind=not over_reversed)
    own_cell = cell if over_reversed else ReversedCell(cell, num_kinds_of(batch))  # type: ignore[arg-type]
    by_row = inputs.index_select(0, downwards.schedule.node_of_row)
    num_roots = downwards.schedule.num_leaf_rows
    try:
        return propagate(own_cell, downwards, by_row[:num_roots], by_row[num_roots:], engine=engine)  # type: ignore[arg-type]
    except CellError as error:
        raise CellError(f"on the way down, where roots are leaves, {error}") from error


def propagate_both(
    down: DownwardCell | Cell,
    batch: TreeBatch,
    up: NodeStates,
    output: str,
    direction: Direction,
    *,
    engine: Engine = "auto",
) -> NodeStates:
    """The states of a downward pass whose nodes read what an upward pass says of them.

    Args:
        down: how states go down.
        batch: the trees.
        up: the states of the upward pass.
        output: name of the state that nodes read, and that the downward cell has too.
        direction: ``"down"`` or ``"both"``; see :class:`treemem.nn.TreeNetwork`.
        engine: how to run.

    Raises:
        GraphError: a node with several parents.
        CellError: no state is called ``output``, or the downward cell is none.
    """
    above = {name: value.index_select(0, up.row_of_node) for name, value in up.states.items()}
    _check_state(above, output, "on the way up")
    downward = propagate_down(down, batch, above[output], engine=engine)
    below = {name: value.index_select(0, downward.row_of_node) for name, value in downward.states.items()}
    row_of_root = nodes_of_roots(reversed_batch(batch, by_kind=not _is_over_reversed_trees(down)))
    row_of_node = torch.arange(batch.num_nodes, device=row_of_root.device)
    _check_state(below, output, "on the way down")
    if direction == "down":
        return NodeStates(below, row_of_node, row_of_root)
    states = {output: torch.cat([above[output], below[output]], dim=-1)}
    states |= {f"up_{name}": value for name, value in above.items()}
    states |= {f"down_{name}": value for name, value in below.items()}
    return NodeStates(states, row_of_node, row_of_root)


def _is_over_reversed_trees(cell: DownwardCell | Cell) -> bool:
    """Whether a cell is one over reversed trees, whose leaves are roots and whose kinds are positions.

    Raises:
        CellError: it is neither that nor a downward cell.
    """
    if callable(getattr(cell, "root", None)):
        return False
    if callable(getattr(cell, "leaf", None)):
        return True
    raise CellError(
        f"{type(cell).__name__} is no downward cell: it needs root(x, kind) and forward(parent, x, position, kind)"
    )


def _check_state(states: State, output: str, where: str) -> None:
    if output not in states:
        raise CellError(f"output={output!r} names no state {where}; there are {quoted(states)}")
