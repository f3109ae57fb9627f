"""Batches in and out of PyG graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from treemem.errors import GraphError
from treemem.schedule.graph_batch import (
    edges_of_schedule,
    kinds_of_nodes,
    labels_of_nodes,
    schedule_of_graph,
    symbols_of_nodes,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.pyg_bridge import forest_to_pyg, graph_to_pyg, read_pyg_edges
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch_geometric.data import Data


def batch_from_pyg(
    data: Data,
    vocabulary: Vocabulary | None = None,
    *,
    labels: Sequence[str] | None = None,
    trees_per_example: int = 1,
    allow_several_parents: bool = False,
) -> TreeBatch:
    """A batch of the trees of a ``Data`` or of a ``Batch``, such as a ``DataLoader`` of PyG makes.

    Arguments, fields and errors are those of :func:`treemem.schedule.graph_batch.batch_from_graph`: ``edge_index`` runs
    from child to parent, ``position`` is a field of the edges, ``label``, ``value``, ``kind`` and ``symbol`` are fields
    of the nodes. Nodes keep their numbers. Each ``Data`` that a loader is to batch needs ``num_nodes`` or ``x``.
    """
    num_nodes, edges = read_pyg_edges(data)
    schedule = schedule_of_graph(
        num_nodes, edges, data, vocabulary, labels=labels, allow_several_parents=allow_several_parents
    )
    return TreeBatch(schedule.to(data.edge_index.device), vocabulary, trees_per_example=trees_per_example)


def pyg_from_batch(batch: TreeBatch) -> Data:
    """The graph of a batch; see :meth:`TreeBatch.to_pyg`."""
    forest, vocabulary, schedule = batch.forest, batch.vocabulary, batch.schedule
    if forest is not None and vocabulary is not None:
        data = forest_to_pyg(forest, labels_of_nodes(forest, schedule, vocabulary))
    elif schedule.shared:
        raise GraphError("a batch of shared rows without a forest and a vocabulary cannot be made a graph of")
    else:
        data = graph_to_pyg(schedule.num_nodes, edges_of_schedule(schedule))
        data.symbol = torch.from_numpy(symbols_of_nodes(schedule))
        value = torch.full((schedule.num_rows,), torch.nan, dtype=torch.float64)
        value[: schedule.num_leaf_rows] = schedule.value.cpu()
        if not value.isnan().all():
            data.value = value[schedule.row_of_node.cpu()]
    data.kind = kinds_of_nodes(schedule)
    return data
