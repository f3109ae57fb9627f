"""The baseline: a binary Tree-LSTM by message passing, in the manner of DGL's own Tree-LSTM example.

``i, o, u`` of a leaf come from its features, those of an inner node from its children's ``h``; the forget gates are
computed where the children's messages meet (Tai et al. 2015, eq. 9-14). As there, the map of the features is applied to
all nodes at once, though only leaves use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.problem import Problem
from benchmarks.ways import ByBatch, Tie, Ties
from treemem.dgl_import import import_dgl
from treemem.schedule.tree_batch import TreeBatch


class MessageTreeLSTM(nn.Module):
    """``h`` of all nodes of a graph of binary trees whose leaves have features."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.leaf_iou = nn.Linear(input_size, 3 * hidden_size)
        self.children_iou = nn.Linear(2 * hidden_size, 3 * hidden_size)
        self.forget = nn.Linear(2 * hidden_size, 2 * hidden_size)

    def send(self, edges: Any) -> dict[str, Tensor]:
        """A child's state."""
        return {"h": edges.src["h"], "c": edges.src["c"]}

    def receive(self, nodes: Any) -> dict[str, Tensor]:
        """The preactivation and what is kept of the children's cells."""
        cells = nodes.mailbox["c"]
        children = nodes.mailbox["h"].flatten(1)
        forget = torch.sigmoid(self.forget(children)).view(cells.shape)
        return {"iou": self.children_iou(children), "c": (forget * cells).sum(1)}

    def update(self, nodes: Any) -> dict[str, Tensor]:
        """The state."""
        gate, output, new = nodes.data["iou"].chunk(3, 1)
        cell = torch.sigmoid(gate) * torch.tanh(new) + nodes.data["c"]
        return {"h": torch.sigmoid(output) * torch.tanh(cell), "c": cell}

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """``h``, ``[nodes, hidden_size]``, of features ``[nodes, input_size]``."""
        dgl = import_dgl()
        with graph.local_scope():
            graph.ndata["iou"] = self.leaf_iou(feat)
            graph.ndata["h"] = feat.new_zeros(graph.num_nodes(), self.hidden_size)
            graph.ndata["c"] = feat.new_zeros(graph.num_nodes(), self.hidden_size)
            # Unlike `prop_nodes_topo` this sends no messages to the leaves, which have no children, and so warns not.
            leaves, *levels = dgl.topological_nodes_generator(graph)
            graph.apply_nodes(self.update, leaves)
            if levels:
                dgl.prop_nodes(graph, levels, self.send, self.receive, self.update)
            return graph.ndata["h"]


def dgl_tree_lstm(problem: Problem) -> ByBatch:
    """The problem's :class:`treemem.nn.TreeLSTM`, run this way."""
    layer = problem.layer
    assert layer.input_size is not None
    twin = MessageTreeLSTM(layer.input_size, layer.hidden_size).to(next(layer.parameters()).dtype)

    def encode(batch: TreeBatch, feat: Tensor | None) -> Tensor:
        return twin(batch.graph, feat)

    return ByBatch(problem, encode, Ties(problem, _ties(twin, layer.hidden_size)))


def _ties(twin: MessageTreeLSTM, size: int) -> Iterator[Tie]:
    """Our blocks are input, two forget gates, output and update; the twin's maps are cut otherwise."""
    yield Tie(twin.leaf_iou.weight, "layer.cell.leaf_map.weight", (0,))
    yield Tie(twin.leaf_iou.bias, "layer.cell.leaf_map.bias", (0,))
    iou = torch.cat([torch.arange(size), torch.arange(3 * size, 5 * size)])
    for map_, rows in ((twin.children_iou, iou), (twin.forget, slice(size, 3 * size))):
        yield Tie(map_.weight, "layer.cell.maps.2.weight", (0, rows))
        yield Tie(map_.bias, "layer.cell.maps.2.bias", (0, rows))
