"""What users bring becomes a batch, with the features of each node at its place."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from treemem import Forest, GraphError, Tree, TreeBatch, Vocabulary, as_batch
from treemem.data.token_batch import TokenBatch
from treemem.nn import LSTM, TreeLSTM

VOCABULARY = Vocabulary(["x", "y", "z"], [("f", 2)])
TREE = Tree("f", [Tree("f", [Tree("x"), Tree("y")]), Tree("z")])
LABEL = [VOCABULARY.labels.index(label) for label in ("f", "f", "x", "y", "z")]
CHILD, PARENT, POSITION = [1, 2, 3, 4], [0, 1, 1, 0], [0, 0, 1, 1]  # from the root down, so not in post-order
IN_POST_ORDER = [2, 3, 1, 4, 0]


def graph_of(library: str) -> Any:
    label, position = torch.tensor(LABEL), torch.tensor(POSITION)
    if library == "dgl":
        graph = pytest.importorskip("dgl").graph((CHILD, PARENT), num_nodes=5)
        graph.ndata["label"], graph.edata["position"] = label, position
        return graph
    data = pytest.importorskip("torch_geometric.data")
    return data.Data(edge_index=torch.tensor([CHILD, PARENT]), num_nodes=5, label=label, position=position)


@pytest.mark.parametrize("library", ["dgl", "pyg"])
def test_features_of_a_graph_belong_to_its_nodes_in_every_network(library: str) -> None:
    torch.manual_seed(0)
    feat = torch.randn(5, 3)
    reader = LSTM(4, VOCABULARY, form="leaves")
    reader.read_features(3)
    batch = TreeBatch.from_trees([TREE], VOCABULARY, share_subtrees=False)
    graph = graph_of(library)
    torch.testing.assert_close(reader(graph, feat).root, reader(batch, feat[IN_POST_ORDER]).root)
    torch.testing.assert_close(reader(as_batch(graph, VOCABULARY, feat)).root, reader(graph, feat).root)
    layer = TreeLSTM(4, input_size=3)
    hidden = layer(batch, feat[IN_POST_ORDER]).h
    torch.testing.assert_close(layer(graph, feat)[IN_POST_ORDER], hidden)


@pytest.mark.parametrize("make", [lambda trees: trees, lambda trees: [*map(str, trees)], Forest.from_trees])
def test_trees_and_texts_are_read_as_a_batch_of_them(make: Any) -> None:
    trees = [TREE, Tree("x")]
    for network in (LSTM(4, VOCABULARY), TreeLSTM(4, VOCABULARY)):
        expected = network(TreeBatch.from_trees(trees, VOCABULARY)).root
        torch.testing.assert_close(network(make(trees)).root, expected)


def test_batches_stay_as_they_are() -> None:
    batch = TreeBatch.from_trees([TREE], VOCABULARY)
    tokens = TokenBatch.from_sequences([[0, 1]])
    assert as_batch(batch) is batch
    assert as_batch(tokens) is tokens
    feat = torch.zeros(5, 2)
    assert as_batch(batch, feat=feat).feat is feat
    assert batch.feat is None
    with pytest.raises(GraphError, match="a TokenBatch has no nodes"):
        as_batch(tokens, feat=feat)
    with pytest.raises(GraphError, match="TreeLSTM reads trees, not a TokenBatch"):
        TreeLSTM(4, VOCABULARY)(tokens)
