"""Any cell by DGL's message passing in topological order: the readable definition that the fast paths must equal."""

from __future__ import annotations

from typing import Any

import torch

from treemem.dgl_import import import_dgl
from treemem.engines.cell import Cell, State, checked_state, leaf_states
from treemem.errors import RecipeError
from treemem.native.second_derivative import active_transforms, refuse_transforms
from treemem.schedule.tree_batch import TreeBatch


def run_naive(cell: Cell, batch: TreeBatch, leaf_inputs: torch.Tensor, inner_inputs: torch.Tensor | None) -> State:
    """The states of all nodes of ``batch.graph``, on the CPU.

    Args:
        cell: the cell.
        batch: the trees; a node with a shared row is computed like any other.
        leaf_inputs: ``[leaf rows, input_size]``.
        inner_inputs: ``[inner rows, input_size]``, or None.

    Returns:
        Each state as ``[nodes, ...]``, in node order.

    Raises:
        CellError: states that are not what the protocol says.
        RecipeError: the layer is not on the CPU.
        RuntimeError: a transform of ``torch.func`` other than ``vmap``.
    """
    if leaf_inputs.device.type != "cpu":
        raise RecipeError(
            f"the naive engine runs on a CPU only, and the layer is on {leaf_inputs.device}; set layer.engine to "
            "'auto', or move the layer to the CPU"
        )
    if active_transforms() != {"Vmap"}:
        refuse_transforms("the naive engine", " except vmap; set layer.engine to 'autograd'")
    dgl = import_dgl()
    graph = batch.graph.local_var()
    row_of_node = batch.schedule.row_of_node
    leaf = torch.nonzero(graph.in_degrees() == 0).flatten()
    kind = graph.ndata["kind"]
    leaves = _leaf_states(cell, leaf_inputs.index_select(0, row_of_node[leaf]), kind[leaf])
    for name, value in leaves.items():
        graph.ndata[f"state {name}"] = value.new_zeros(graph.num_nodes(), *value.shape[1:]).index_copy(0, leaf, value)
    if inner_inputs is not None and len(inner_inputs):
        of_inner = inner_inputs.index_select(0, (row_of_node - len(leaf_inputs)).clamp(min=0))
        graph.ndata["input"] = of_inner

    def send(edges: Any) -> State:
        return {**{name: edges.src[f"state {name}"] for name in leaves}, "position": edges.data["position"]}

    def receive(nodes: Any) -> State:
        order = nodes.mailbox["position"].argsort(dim=1)
        first = torch.arange(len(order), device=order.device)[:, None]
        children = {name: nodes.mailbox[name][first, order] for name in leaves}
        x = nodes.data.get("input")
        states = {name: value.new_zeros(len(order), *value.shape[2:]) for name, value in children.items()}
        for one_kind in nodes.data["kind"].unique().tolist():
            place = torch.nonzero(nodes.data["kind"] == one_kind).flatten()
            children_of_kind = {name: value[place] for name, value in children.items()}
            made = cell(children_of_kind, None if x is None else x[place], one_kind)
            made = checked_state(made, leaves, len(place), cell, f"forward(..., {one_kind})")
            states = {name: value.index_copy(0, place, made[name]) for name, value in states.items()}
        return {f"state {name}": value for name, value in states.items()}

    if graph.num_edges():
        levels = dgl.topological_nodes_generator(graph)[1:]
        dgl.prop_nodes(graph, levels, send, receive, apply_node_func=None)
    return {name: graph.ndata[f"state {name}"] for name in leaves}


def _leaf_states(cell: Cell, inputs: torch.Tensor, kind: torch.Tensor) -> State:
    """The states of leaves of any mixture of kinds, in the order of ``inputs``."""
    order = torch.argsort(kind, stable=True)
    kinds, counts = torch.unique_consecutive(kind[order], return_counts=True)
    ends = counts.cumsum(0).tolist()
    segments = list(zip([0, *ends[:-1]], ends, kinds.tolist(), strict=True)) if ends else []
    states = leaf_states(cell, inputs.index_select(0, order), segments)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return {name: value.index_select(0, back) for name, value in states.items()}
