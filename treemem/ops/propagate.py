"""A cell over a batch of trees, on the engine of one's choice."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.errors import RecipeError
from treemem.ops.cell import Cell, State, check_cell, is_split
from treemem.schedule.tree_batch import TreeBatch

Engine = Literal["auto", "fused", "naive", "recursive", "autograd"]


class NodeStates(NamedTuple):
    """The states of a batch, and where each node's are.

    Attributes:
        states: by name, ``[rows, ...]``.
        row_of_node: int64 ``[nodes]``.
        row_of_root: int64 ``[trees]``.
    """

    states: State
    row_of_node: torch.Tensor
    row_of_root: torch.Tensor


def checked_engine(engine: str) -> Engine:
    """Return ``engine`` if it is one; raise :class:`RecipeError` if not."""
    return checked_choice("engine", engine, get_args(Engine))


def propagate(
    cell: Cell,
    batch: TreeBatch,
    leaf_inputs: torch.Tensor,
    inner_inputs: torch.Tensor | None = None,
    *,
    engine: Engine = "auto",
) -> NodeStates:
    """The states of every node, from the leaves to the roots.

    All engines give the same numbers and gradients. ``"fused"`` (what ``"auto"`` takes) runs level by level as one
    node of the autograd graph; cells with the split form run whole levels at once, others are called once for each
    segment (level, kind and arity), and so often their forward hooks fire. ``"naive"`` is DGL's message passing
    and runs on a CPU only. ``"recursive"`` goes node by node, and it is what ``torch.export`` can follow: there
    ``"auto"`` takes it.

    Args:
        cell: the composition function.
        batch: the trees.
        leaf_inputs: ``[leaf rows, input_size]``, what ``cell.leaf`` reads, in the row order of ``batch.schedule``.
        inner_inputs: ``[inner rows, input_size]``, features of inner nodes in row order; None where they have none.
        engine: how to run.

    Raises:
        CellError: the cell lacks a method, or returned states that are not what the protocol says.
        RecipeError: an unknown engine, or one that ``torch.export`` cannot follow under it.
    """
    check_cell(cell)
    engine, schedule = checked_engine(engine), batch.schedule
    if is_exporting():
        if engine not in ("auto", "recursive"):
            raise RecipeError(
                f"torch.export cannot follow the engine {engine!r}, which writes in place or passes messages by DGL; "
                "set the layer's engine to 'auto' or 'recursive'"
            )
        engine = "recursive"
    if engine == "naive":
        from treemem.ops.naive import run_naive

        states = run_naive(cell, batch, leaf_inputs, inner_inputs)
        if schedule.shared:
            roots = torch.nonzero(batch.graph.out_degrees() == 0).flatten()
        else:
            roots = schedule.node_of_row[schedule.row_of_root]
        return NodeStates(states, torch.arange(batch.num_nodes), roots)
    if engine == "recursive":
        from treemem.ops.recursive import run_recursive

        states = run_recursive(cell, schedule, leaf_inputs, inner_inputs)
    elif engine == "autograd":
        from treemem.engines.autograd import run_autograd

        states = run_autograd(cell, schedule, leaf_inputs, inner_inputs)
    elif is_split(cell) and getattr(cell, "step_pair", None):
        from treemem.ops.levels import run_levels

        states = run_levels(cell, schedule, leaf_inputs, inner_inputs)  # type: ignore[arg-type]
    else:
        from treemem.ops.segments import run_segments

        states = run_segments(cell, schedule, leaf_inputs, inner_inputs)
    return NodeStates(states, schedule.row_of_node, schedule.row_of_root)


def is_exporting() -> bool:
    """Return whether ``torch.export`` follows what is run; False on a torch that cannot tell."""
    return hasattr(torch.compiler, "is_exporting") and torch.compiler.is_exporting()
