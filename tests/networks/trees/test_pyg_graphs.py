"""PyG graphs in, tensors in node order out: what DGL graphs give."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from engine_parity import needs_dgl
from tree_strategies import NUMBER, VOCABULARY, random_forest

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError
from treemem.nn import LSTM, SPINN, StackTreeLSTM, TreeLSTM
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")

# Two trees with their nodes in no order: 4 <- (2, 0), 2 <- (1, 5); 3 <- (6).
EDGES, POSITION, NUM_NODES = torch.tensor([[0, 5, 2, 1, 6], [4, 2, 4, 2, 3]]), torch.tensor([1, 1, 0, 0, 0]), 7


def layer_of_features(**options: Any) -> TreeLSTM:
    torch.manual_seed(0)
    return TreeLSTM(3, input_size=2, arities=(1, 2), **options).double()


@needs_dgl
def test_a_graph_of_pyg_gives_what_the_same_graph_of_dgl_gives() -> None:
    layer, feat = layer_of_features(node_features=True), torch.randn(NUM_NODES, 2, dtype=torch.float64)
    graph = import_dgl().graph((EDGES[0], EDGES[1]), num_nodes=NUM_NODES)
    in_order = layer(data.Data(x=feat, edge_index=EDGES), feat)
    torch.testing.assert_close(in_order, layer(graph, feat), rtol=0, atol=0)
    graph.edata["position"] = POSITION
    placed = layer(data.Data(x=feat, edge_index=EDGES, position=POSITION), feat)
    torch.testing.assert_close(placed, layer(graph, feat), rtol=0, atol=0)
    assert not torch.equal(placed, in_order)


def test_a_batch_of_labelled_trees_its_graph_and_the_batch_of_their_graphs_agree() -> None:
    torch.manual_seed(0)
    layer = StackTreeLSTM(3, VOCABULARY).double()
    forest = random_forest(seed=8, num_trees=6, size=10)
    batch = TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=2)
    graph = batch.to_pyg()
    assert (graph.num_graphs, graph.kind.shape) == (6, (batch.num_nodes,))
    torch.testing.assert_close(layer(graph), layer(batch).h)
    graphs = [tree.to_pyg(VOCABULARY.labels) for tree in forest]
    collated = TreeBatch.from_pyg(data.Batch.from_data_list(graphs), VOCABULARY, trees_per_example=2)
    torch.testing.assert_close(layer(collated).root, layer(batch).root)


@pytest.mark.parametrize("network", [LSTM, partial(SPINN, transitions="gold")])
def test_a_sequence_encoder_reads_the_tokens_and_trees_of_labelled_graphs(network: Any) -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x", "y"], [("f", 2), ("g", 1)])
    forest = Forest.from_trees([Tree("f", [Tree("g", [Tree("x")]), Tree("y")]), Tree("x")])
    encoder, batch = network(4, vocabulary), TreeBatch.from_forest(forest, vocabulary)
    graphs = data.Batch.from_data_list([tree.to_pyg(vocabulary.labels) for tree in forest])
    torch.testing.assert_close(encoder(graphs).root, encoder(batch).root)


def test_the_loader_of_pyg_makes_batches_of_trees() -> None:
    loader = pytest.importorskip("torch_geometric.loader")
    forest = random_forest(seed=3, num_trees=5, size=6)
    graphs = [tree.to_pyg(VOCABULARY.labels) for tree in forest]
    batches = [TreeBatch.from_pyg(batch, VOCABULARY) for batch in loader.DataLoader(graphs, batch_size=2)]
    assert [batch.num_trees for batch in batches] == [2, 2, 1]


def test_a_batch_made_from_a_graph_goes_back_with_its_nodes_as_they_were() -> None:
    numbered = Tree("add", [Tree(NUMBER, value=2.5), Tree("x")])
    batch = TreeBatch.from_trees([*random_forest(seed=5, num_trees=4, size=9), numbered], VOCABULARY)
    again = TreeBatch.from_pyg(TreeBatch.from_pyg(batch.to_pyg(), VOCABULARY).to_pyg(), VOCABULARY)
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY)
    torch.testing.assert_close(layer(again).h, layer(batch).h)

    shuffled = TreeBatch.from_pyg(data.Data(edge_index=EDGES, position=POSITION, num_nodes=NUM_NODES)).to_pyg()
    edges = {(*edge, place) for edge, place in zip(EDGES.T.tolist(), POSITION.tolist(), strict=True)}
    back = zip(shuffled.edge_index.T.tolist(), shuffled.position.tolist(), strict=True)
    assert {(*edge, place) for edge, place in back} == edges


def graph_of(child: list[int], parent: list[int], num_nodes: int, **fields: Any) -> Any:
    return data.Data(edge_index=torch.tensor([child, parent]), num_nodes=num_nodes, **fields)


def test_graphs_that_do_not_fit_are_refused_as_those_of_dgl_are() -> None:
    layer = layer_of_features()
    with pytest.raises(GraphError, match="a cycle of 3 nodes"):
        layer(graph_of([0, 1, 2], [1, 2, 0], 3), torch.zeros(3, 2))
    with pytest.raises(GraphError, match="node 0 has 2 parents"):
        layer(graph_of([0, 0], [1, 2], 3), torch.zeros(3, 2))
    with pytest.raises(GraphError, match="edge 1 touches node 5; there are 3 nodes"):
        layer(graph_of([0, 5], [2, 2], 3), torch.zeros(3, 2))
    with pytest.raises(GraphError, match="edge 0 touches node -1"):
        TreeBatch.from_pyg(graph_of([-1], [0], 1), VOCABULARY)
    with pytest.raises(GraphError, match="node 2 has 2 children at the positions 0, 2"):
        layer(graph_of([0, 1], [2, 2], 3, position=torch.tensor([0, 2])), torch.zeros(3, 2))
    with pytest.raises(GraphError, match=r"feat must be \[3, .*, not \[7, "):
        layer(graph_of([0, 1], [2, 2], 3), torch.zeros(7, 2))
    with pytest.raises(GraphError, match="a TreeBatch, a DGLGraph or a Data of PyG, not set"):
        layer(set(), torch.zeros(0, 2))
    with pytest.raises(GraphError, match="trees need a vocabulary"):
        layer([], torch.zeros(0, 2))


def test_a_node_of_several_parents_is_taken_where_it_is_allowed() -> None:
    batch = TreeBatch.from_pyg(graph_of([0, 0, 1, 2], [1, 2, 3, 3], 4), allow_several_parents=True)
    assert layer_of_features()(batch, torch.ones(4, 2, dtype=torch.float64)).root.shape == (1, 1, 3)


def test_a_layer_takes_features_and_an_edge_index() -> None:
    layer, feat = layer_of_features(), torch.randn(4, 2, dtype=torch.float64)
    edge_index = torch.tensor([[1, 0, 3], [2, 2, 1]])  # 2 has the children 1 and 0, and 1 has 3
    hidden = layer(feat, edge_index)
    batch = TreeBatch.from_edge_index(edge_index, 4)
    torch.testing.assert_close(hidden, layer(batch, feat).h)
    assert batch.num_trees == 1
    for wrong, problem in (
        (edge_index.double(), r"integer tensor .* It is torch\.float64"),
        (edge_index.bool(), r"It is torch\.bool"),
        (edge_index.tolist(), "It is a list"),
        (torch.tensor([[0], [0]]), "node 0 has an edge to itself"),
        (edge_index[:1], r"\[2, edges\]"),
        (torch.tensor([[0, 1], [1, 0]]), "cycle"),
        (torch.tensor([[0], [9]]), "9"),
    ):
        with pytest.raises(GraphError, match=problem):
            layer(feat, wrong)
    with pytest.raises(GraphError, match=r"layer\(x, edge_index\)"):
        layer(feat)
