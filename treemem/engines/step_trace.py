"""What the steps of a run did: gates that the engines do not keep, computed again from the states."""

from __future__ import annotations

import torch

from treemem.engines.cell import Cell, State, checked_state
from treemem.engines.propagate import NodeStates
from treemem.schedule.schedule import Schedule


@torch.no_grad()
def trace_steps(
    cell: Cell,
    schedule: Schedule,
    states: NodeStates,
    leaf_inputs: torch.Tensor,
    inner_inputs: torch.Tensor | None = None,
) -> State:
    """What the step of every node did, by name, ``[nodes, ...]``, whichever engine ran it; without gradients.

    The cell says it in ``trace(children, x, kind)``, for ``m`` nodes of one kind and arity as when it is called, and in
    ``leaf_trace(x, kind)``. Where a name has one entry a child, ``[m, arity, ...]``, entries of children that a node
    does not have are NaN; so is everything of a node of which the name is not told, as of most leaves.

    Args:
        cell: ran over the batch; one without ``trace`` gives an empty trace.
        schedule: of the batch.
        states: what came of it.
        leaf_inputs, inner_inputs: what the cell read; see :func:`treemem.engines.propagate.propagate`.

    Raises:
        CellError: ``trace`` does not return a dict of tensors ``[m, width, ...]``.
    """
    of_leaves, of_inner = getattr(cell, "leaf_trace", None), getattr(cell, "trace", None)
    place = states.row_of_node.index_select(0, schedule.node_of_row)
    by_row = {name: value.index_select(0, place) for name, value in states.states.items()}
    parts: list[tuple[int, int, State]] = []
    for height, level in enumerate(schedule.levels):
        for begin, end, kind, arity, first in level.segments:
            if height == 0:
                of_rows = of_leaves(leaf_inputs[begin:end], kind) if of_leaves else {}
            elif of_inner is None:
                of_rows = {}
            else:
                child = schedule.child[first : first + (end - begin) * arity]
                children = {
                    name: value.index_select(0, child).unflatten(0, (end - begin, arity))
                    for name, value in by_row.items()
                }
                above = schedule.num_leaf_rows
                x = None if inner_inputs is None else inner_inputs[begin - above : end - above]
                of_rows = of_inner(children, x, kind)
            if of_rows:
                parts.append((begin, end, checked_state(of_rows, None, end - begin, cell, "trace")))
    traced = _joined(parts, schedule.num_rows)
    return {name: value.index_select(0, schedule.row_of_node) for name, value in traced.items()}


def _joined(parts: list[tuple[int, int, State]], num_rows: int) -> State:
    """The parts in one tensor a name, ``[rows, ...]``, NaN where no part says anything."""
    widest: dict[str, torch.Tensor] = {}
    for _, _, part in parts:
        for name, value in part.items():
            if name not in widest or value.shape[1:2] > widest[name].shape[1:2]:
                widest[name] = value
    joined = {name: value.new_full((num_rows, *value.shape[1:]), torch.nan) for name, value in widest.items()}
    for begin, end, part in parts:
        for name, value in part.items():
            joined[name][begin:end, : value.shape[1]] = value
    return joined
