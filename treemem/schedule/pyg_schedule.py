"""Schedules of PyG graphs, and PyG graphs of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from treemem.schedule.dgl_schedule import (
    check_own_rows,
    edges_of_schedule,
    kinds_of_nodes,
    labels_of_nodes,
    schedule_of_graph,
    symbols_of_nodes,
    values_of_nodes,
)
from treemem.schedule.schedule import Schedule
from treemem.trees.bridges.pyg import forest_to_pyg, graph_to_pyg, read_pyg_edges
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch_geometric.data import Data


def schedule_of_pyg(
    data: Data, vocabulary: Vocabulary | None, *, labels: Sequence[str] | None, allow_several_parents: bool
) -> Schedule:
    """The schedule of a PyG graph on its device.

    Arguments and errors are those of :meth:`treemem.schedule.TreeBatch.from_pyg`, but any graph may hold any number of
    trees.
    """
    num_nodes, edges = read_pyg_edges(data)
    schedule = schedule_of_graph(
        num_nodes, edges, data, vocabulary, labels=labels, allow_several_parents=allow_several_parents
    )
    return schedule.to(data.edge_index.device)


def pyg_of_trees(forest: Forest | None, schedule: Schedule, vocabulary: Vocabulary | None) -> Data:
    """The PyG graph of a batch; :meth:`treemem.schedule.TreeBatch.to_pyg` says which fields it has.

    Raises:
        GraphError: rows are shared, and there is no forest or no vocabulary.
    """
    if forest is not None and vocabulary is not None:
        data = forest_to_pyg(forest, labels_of_nodes(schedule, vocabulary))
    else:
        check_own_rows(schedule)
        data = graph_to_pyg(schedule.num_nodes, edges_of_schedule(schedule))
        data.symbol = torch.from_numpy(symbols_of_nodes(schedule))
        value = values_of_nodes(schedule)
        if not np.isnan(value).all():
            data.value = torch.from_numpy(value)
    data.kind = kinds_of_nodes(schedule)
    return data
