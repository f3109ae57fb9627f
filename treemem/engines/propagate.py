"""A cell over a batch of trees, on the engine of one's choice."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.engines.autograd import run_autograd
from treemem.engines.cell import Cell, Features, State, check_cell, feature_rows
from treemem.engines.cuda.choice import kernels_wanted
from treemem.engines.cuda.run import run_cuda
from treemem.engines.cuda.trees_in_bucket import BucketSchedule
from treemem.engines.native import NotNative, run_native
from treemem.errors import RecipeError
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch

Engine = Literal["auto", "naive", "autograd", "native", "cuda"]
_FORMER = {"fused": "auto", "recursive": "autograd"}  # engines by the names that they once had


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
    """Return ``engine``, or the present name of a former one; raise :class:`RecipeError` if it is none."""
    return checked_choice("engine", _FORMER.get(str(engine), engine), get_args(Engine))


def propagate(
    cell: Cell,
    batch: TreeBatch,
    leaf_inputs: torch.Tensor,
    inner_inputs: Features = None,
    *,
    engine: Engine = "auto",
) -> NodeStates:
    """The states of every node, from the leaves to the roots.

    All engines give the same numbers and gradients. ``"naive"`` is DGL's message passing and runs on a CPU only.
    ``"autograd"`` runs level by level in plain torch: on any device, in any precision, with second derivatives, within
    transforms of ``torch.func`` and under ``torch.export``. Cells with the split form run whole levels at once, others
    are called once for each segment (level, kind and arity), and so often their forward hooks fire. ``"native"`` runs
    level by level in C++ with a backward pass of its own: see :func:`treemem.engines.native.run_native`. ``"cuda"``
    does the same on a GPU, in Triton: see :func:`treemem.engines.cuda.run.run_cuda`. ``"auto"`` takes ``"native"``
    where it can run, else ``"autograd"``; and ``"cuda"`` if :func:`treemem.ops.cuda_kernels` says so, since it has not
    run on a GPU yet.

    Args:
        cell: the composition function.
        batch: the trees.
        leaf_inputs: ``[leaf rows, input_size]``, what ``cell.leaf`` reads, in the row order of ``batch.schedule``.
        inner_inputs: ``[inner rows, input_size]``, features of inner nodes in row order, or vectors by label; or None.
        engine: how to run.

    Raises:
        CellError: the cell lacks a method, or returned states that are not what the protocol says.
        RecipeError: an unknown engine, or one that cannot run here; the message says why.
    """
    check_cell(cell)
    engine, schedule = checked_engine(engine), batch.schedule
    if engine != "naive":
        states = run_rows(cell, schedule, leaf_inputs, inner_inputs, engine=engine)
        return NodeStates(states, schedule.row_of_node, schedule.row_of_root)
    if torch.compiler.is_exporting():
        raise RecipeError(
            "torch.export cannot follow the engine 'naive', which passes messages by DGL; set the layer's engine to "
            "'auto' or 'autograd'"
        )
    from treemem.engines.naive import run_naive

    states = run_naive(cell, batch, leaf_inputs, feature_rows(inner_inputs))
    if schedule.shared:
        roots = torch.nonzero(batch.graph.out_degrees() == 0).flatten()
    else:
        roots = schedule.node_of_row[schedule.row_of_root]
    return NodeStates(states, torch.arange(batch.num_nodes), roots)


def run_rows(
    cell: Cell,
    schedule: Schedule,
    leaf_inputs: torch.Tensor,
    inner_inputs: Features = None,
    *,
    engine: Literal["auto", "autograd", "native", "cuda"] = "auto",
) -> State:
    """The states of all rows of a schedule, each ``[rows, ...]``; see :func:`propagate`.

    Raises:
        RecipeError: the engine cannot run here; in a bucket of CUDA graphs, any engine other than ``"cuda"``.
    """
    remedy = "set the layer's engine to 'auto' or 'autograd'"
    if isinstance(schedule, BucketSchedule):
        if engine not in ("auto", "cuda"):
            raise RecipeError(f"in a CUDA graph trees run on the engine 'cuda', not on {engine!r}; set it to 'auto'")
        engine, remedy = "cuda", "run the step with enabled=False"
    for name, run in (("native", run_native), ("cuda", run_cuda)):
        if engine == name or (engine == "auto" and (name == "native" or kernels_wanted())):
            try:
                return run(cell, schedule, leaf_inputs, inner_inputs)
            except NotNative as reason:
                if engine == name:
                    raise RecipeError(f"the engine {name!r} cannot run here: {reason}; {remedy}") from None
    return run_autograd(cell, schedule, leaf_inputs, feature_rows(inner_inputs))
