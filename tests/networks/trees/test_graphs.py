"""Layers in a pipeline of graph networks: DGL graphs in, tensors in node order out."""

from __future__ import annotations

import pytest
import torch
from engine_parity import HAS_DGL, NO_DGL
from tree_strategies import VOCABULARY

from treemem.dgl_import import import_dgl
from treemem.errors import ChildOrderWarning, GraphError, RecipeError, VocabularyError
from treemem.nn import LSTM, ChildSumTreeLSTM, StackTreeLSTM, StackTreeRNN, TreeCell, TreeLayer, TreeLSTM, TreeRNN
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

if not HAS_DGL:
    pytest.skip(NO_DGL, allow_module_level=True)
dgl = import_dgl()

# Two trees with their nodes in no order: 4 <- (2, 0), 2 <- (1, 5); 3 <- (6).
CHILD, PARENT, POSITION = [0, 5, 2, 1, 6], [4, 2, 4, 2, 3], [1, 1, 0, 0, 0]
NUM_NODES, LEAVES = 7, [0, 1, 5, 6]
LAYERS = [TreeRNN, TreeLSTM, ChildSumTreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM]


def graph_of(order: list[int]) -> dgl.DGLGraph:
    """The two trees with their edges in some order."""
    graph = dgl.graph(([CHILD[edge] for edge in order], [PARENT[edge] for edge in order]), num_nodes=NUM_NODES)
    graph.edata["position"] = torch.tensor([POSITION[edge] for edge in order])
    return graph


def layer_of(layer_class: type[TreeLayer], **options: object) -> TreeLayer:
    torch.manual_seed(0)
    arities = {} if layer_class is ChildSumTreeLSTM else {"arities": (1, 2)}
    return layer_class(3, input_size=2, **arities, **options).double()


@pytest.mark.parametrize("layer_class", LAYERS)
@pytest.mark.parametrize("node_features", [False, True])
def test_a_graph_gives_hidden_states_in_its_node_order(layer_class: type[TreeLayer], node_features: bool) -> None:
    layer = layer_of(layer_class, node_features=node_features)
    feat = torch.randn(NUM_NODES, 2, dtype=torch.float64, requires_grad=True)
    expected = None
    for engine in ("auto", "naive", "autograd"):
        layer.engine = engine  # type: ignore[assignment]
        hidden = layer(graph_of([0, 1, 2, 3, 4]), feat)
        assert isinstance(hidden, torch.Tensor)
        assert hidden.shape == (NUM_NODES, 3)
        (gradient,) = torch.autograd.grad(hidden[4, 0], feat)  # the sum of a layer norm would be constant
        below = [0, 1, 5, *([2, 4] if node_features else [])]
        assert gradient.abs().sum(1).nonzero().flatten().tolist() == sorted(below)
        expected = (hidden, gradient) if expected is None else expected
        torch.testing.assert_close((hidden, gradient), expected)


@pytest.mark.parametrize("layer_class", LAYERS)
def test_the_order_of_edges_does_not_matter_where_positions_are_given(layer_class: type[TreeLayer]) -> None:
    layer = layer_of(layer_class)
    feat = torch.randn(NUM_NODES, 2, dtype=torch.float64)
    expected = layer(graph_of([0, 1, 2, 3, 4]), feat)
    for order in ([4, 3, 2, 1, 0], [2, 4, 0, 3, 1]):
        torch.testing.assert_close(layer(graph_of(order), feat), expected, rtol=0, atol=0)


def test_a_layer_chains_with_graph_convolutions_and_trains_them() -> None:
    torch.manual_seed(0)
    graph = dgl.batch([graph_of([0, 1, 2, 3, 4]), graph_of([2, 4, 0, 3, 1])])
    before = dgl.nn.GraphConv(5, 2, allow_zero_in_degree=True)
    layer = TreeLSTM(3, input_size=2, node_features=True, arities=(1, 2))
    after = dgl.nn.GraphConv(3, 4, allow_zero_in_degree=True)
    modules = torch.nn.ModuleList([before, layer, after])
    optimizer = torch.optim.Adam(modules.parameters(), lr=0.05)
    feat, target = torch.randn(graph.num_nodes(), 5), torch.randn(graph.num_nodes(), 4)
    losses = []
    for _ in range(15):
        loss = (after(graph, layer(graph, before(graph, feat))) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in before.parameters())


def test_graphs_that_do_not_fit_are_refused() -> None:
    layer, feat = layer_of(TreeLSTM), torch.zeros(NUM_NODES, 2)
    with pytest.raises(GraphError, match="cycle"):
        layer(dgl.graph(([0, 1, 2], [1, 2, 0])), torch.zeros(3, 2))
    with pytest.raises(GraphError, match="node 0"):
        layer(dgl.graph(([0, 0], [1, 2])), torch.zeros(3, 2))
    with pytest.raises(GraphError, match=r"feat must be \[3, .*, not \[7, "):
        layer(dgl.graph(([0, 1], [2, 2])), feat)
    with pytest.raises(GraphError, match=r"node 3 has 3 children.* with 1 or 2 children; add 3 to its arities"):
        layer(dgl.graph(([0, 1, 2], [3, 3, 3])), torch.zeros(4, 2))
    with pytest.raises((GraphError, VocabularyError)):
        TreeLSTM(3, VOCABULARY)(graph_of([0, 1, 2, 3, 4]))
    unlabelled = TreeBatch.from_dgl(graph_of([0, 1, 2, 3, 4]))
    with pytest.raises(VocabularyError, match="the batch has no labels"):
        TreeLSTM(3, VOCABULARY)(unlabelled)


@pytest.mark.parametrize("num_nodes", [0, 3])
def test_graphs_without_edges_are_trees_of_one_node(num_nodes: int) -> None:
    layer = layer_of(TreeLSTM, node_features=True)
    graph = dgl.graph(([], []), num_nodes=num_nodes)
    feat = torch.randn(num_nodes, 2, dtype=torch.float64)
    for engine in ("auto", "naive", "autograd"):
        layer.engine = engine  # type: ignore[assignment]
        assert layer(graph, feat).shape == (num_nodes, 3)
    assert layer(TreeBatch.from_dgl(graph), feat).root.shape == (num_nodes, 1, 3)


def test_only_roots_of_a_graph_are_refused() -> None:
    layer = TreeLSTM(4, input_size=3)
    with pytest.raises(RecipeError, match="keep='roots' needs a TreeBatch"):
        layer(dgl.graph(([0, 1], [2, 2])), torch.zeros(3, 3), keep="roots")


@pytest.mark.filterwarnings("error::treemem.errors.ChildOrderWarning")
@pytest.mark.parametrize("layer_class", LAYERS)
def test_edges_without_positions_are_warned_of_where_order_matters(
    layer_class: type[TreeLayer],
) -> None:
    layer, feat = layer_of(layer_class), torch.randn(NUM_NODES, 2, dtype=torch.float64)
    graph = dgl.graph((CHILD, PARENT), num_nodes=NUM_NODES)
    chain = dgl.graph(([0, 1], [1, 2]))
    layer(graph_of([0, 1, 2, 3, 4]), feat), layer(TreeBatch.from_dgl(graph), feat), layer(chain, feat[:3])  # in silence
    for given in ((graph, feat), (feat, torch.tensor([CHILD, PARENT]))):
        if layer_class is ChildSumTreeLSTM:
            layer(*given)
        else:
            with pytest.warns(ChildOrderWarning, match=f"the order of children matters to {layer_class.__name__}"):
                layer(*given)


def test_a_sequence_encoder_warns_of_edges_without_positions() -> None:
    vocabulary = Vocabulary(["x", "y"], [("f", 2)])
    graph = Tree("f", ["x", "y"]).to_dgl(vocabulary.labels)
    encoder = LSTM(3, vocabulary)
    encoder(graph)
    del graph.edata["position"]
    with pytest.warns(ChildOrderWarning, match="the order of children matters to LSTM"):
        encoder(graph)
