"""Any cell node by node, in plain autograd: the definition where DGL cannot be had."""

from __future__ import annotations

import torch

from treemem.ops.cell import Cell, State, checked_state
from treemem.schedule.schedule import Schedule


def run_recursive(
    cell: Cell, schedule: Schedule, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None
) -> State:
    """The states of all rows, one row after the other.

    Args:
        cell: the cell.
        schedule: the rows.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[rows, ...]``.

    Raises:
        CellError: states that are not what the protocol says.
    """
    child = schedule.child.tolist()
    states: list[State] = []
    like: State | None = None
    for level in schedule.levels:
        for segment in level.segments:
            for row in range(segment.begin, segment.end):
                if segment.arity == 0:
                    state = cell.leaf(leaf_inputs[row : row + 1], segment.kind)
                    call = f"leaf(x, {segment.kind})"
                else:
                    first = segment.first_child + (row - segment.begin) * segment.arity
                    below = [states[each] for each in child[first : first + segment.arity]]
                    children = {name: torch.stack([each[name] for each in below], dim=1) for name in below[0]}
                    place = row - len(leaf_inputs)
                    x = None if inner_inputs is None else inner_inputs[place : place + 1]
                    state = cell(children, x, segment.kind)
                    call = f"forward(..., {segment.kind})"
                states.append(checked_state(state, like, 1, cell, call))
                like = like or states[0]
    if like is None:
        return checked_state(cell.leaf(leaf_inputs, 0), None, 0, cell, "leaf(x, 0)")
    return {name: torch.cat([state[name] for state in states]) for name in like}
