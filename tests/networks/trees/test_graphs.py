"""Layers in a pipeline of graph networks: graphs of DGL and of PyG in, tensors in node order out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from engine_parity import ENGINES, HAS_DGL, needs_dgl
from tree_networks import LAYERS
from tree_strategies import NUMBER, VOCABULARY, random_forest

from treemem.dgl_import import import_dgl
from treemem.errors import ChildOrderWarning, GraphError, RecipeError, VocabularyError
from treemem.nn import (
    LSTM,
    SPINN,
    ChildSumTreeLSTM,
    StackTreeLSTM,
    TreeLayer,
    TreeLSTM,
)
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
dgl = import_dgl() if HAS_DGL else None

# Two trees with their nodes in no order: 4 <- (2, 0), 2 <- (1, 5); 3 <- (6).
CHILD, PARENT, POSITION, NUM_NODES = [0, 5, 2, 1, 6], [4, 2, 4, 2, 3], [1, 1, 0, 0, 0], 7
every_layer = pytest.mark.parametrize("layer_class", LAYERS)


def of_dgl(child: list[int], parent: list[int], num_nodes: int, position: list[int] | None = None) -> Any:
    graph = dgl.graph((child, parent), num_nodes=num_nodes)
    if position is not None:
        graph.edata["position"] = torch.tensor(position)
    return graph


def of_pyg(child: list[int], parent: list[int], num_nodes: int, position: list[int] | None = None) -> Any:
    fields = {} if position is None else {"position": torch.tensor(position)}
    return data.Data(edge_index=torch.tensor([child, parent], dtype=torch.int64), num_nodes=num_nodes, **fields)


MAKERS: list[Any] = [of_pyg, pytest.param(of_dgl, marks=needs_dgl)]
every_library = pytest.mark.parametrize("make", MAKERS)
GraphMaker = Callable[..., Any]


def two_trees(make: GraphMaker, order: tuple[int, ...] = (0, 1, 2, 3, 4), *, placed: bool = True) -> Any:
    """The two trees with their edges in some order."""
    child, parent, position = ([each[edge] for edge in order] for each in (CHILD, PARENT, POSITION))
    return make(child, parent, NUM_NODES, position if placed else None)


def layer_of(layer_class: Any = TreeLSTM, **options: object) -> TreeLayer:
    torch.manual_seed(0)
    arities = {} if layer_class is ChildSumTreeLSTM else {"arities": (1, 2)}
    return layer_class(3, input_size=2, **arities, **options).double()


@every_layer
@pytest.mark.parametrize("node_features", [False, True])
@every_library
def test_a_graph_gives_hidden_states_in_its_node_order(
    make: GraphMaker, layer_class: type[TreeLayer], node_features: bool
) -> None:
    layer = layer_of(layer_class, node_features=node_features)
    feat = torch.randn(NUM_NODES, 2, dtype=torch.float64, requires_grad=True)
    found = []
    for engine in ENGINES:
        layer.engine = engine
        hidden = layer(two_trees(make), feat)
        assert hidden.shape == (NUM_NODES, 3)
        (gradient,) = torch.autograd.grad(hidden[4, 0], feat)  # the sum of a layer norm would be constant
        below = [0, 1, 5, *([2, 4] if node_features else [])]
        assert gradient.abs().sum(1).nonzero().flatten().tolist() == sorted(below)
        found.append((hidden, gradient))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    for order in ((4, 3, 2, 1, 0), (2, 4, 0, 3, 1)):
        torch.testing.assert_close(layer(two_trees(make, order), feat), hidden, rtol=0, atol=0)


@needs_dgl
def test_a_graph_of_pyg_gives_what_the_same_graph_of_dgl_gives() -> None:
    layer, feat = layer_of(node_features=True), torch.randn(NUM_NODES, 2, dtype=torch.float64)
    found = []
    for placed in (False, True):
        both = [layer(two_trees(make, placed=placed), feat) for make in (of_pyg, of_dgl)]
        torch.testing.assert_close(*both, rtol=0, atol=0)
        found.append(both[0])
    assert not torch.equal(*found)


@needs_dgl
def test_a_layer_chains_with_graph_convolutions_and_trains_them() -> None:
    torch.manual_seed(0)
    graph = dgl.batch([two_trees(of_dgl), two_trees(of_dgl, (2, 4, 0, 3, 1))])
    before = dgl.nn.GraphConv(5, 2, allow_zero_in_degree=True)
    layer = TreeLSTM(3, input_size=2, node_features=True, arities=(1, 2))
    after = dgl.nn.GraphConv(3, 4, allow_zero_in_degree=True)
    optimizer = torch.optim.Adam(torch.nn.ModuleList([before, layer, after]).parameters(), lr=0.05)
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


@pytest.mark.parametrize("num_nodes", [0, 3])
@every_library
def test_graphs_without_edges_are_trees_of_one_node(make: GraphMaker, num_nodes: int) -> None:
    layer, graph = layer_of(node_features=True), make([], [], num_nodes)
    feat = torch.randn(num_nodes, 2, dtype=torch.float64)
    for engine in ENGINES:
        layer.engine = engine
        assert layer(graph, feat).shape == (num_nodes, 3)


@pytest.mark.filterwarnings("error::treemem.errors.ChildOrderWarning")
@every_layer
@every_library
def test_edges_without_positions_are_warned_of_where_order_matters(
    make: GraphMaker, layer_class: type[TreeLayer]
) -> None:
    layer, feat = layer_of(layer_class), torch.randn(NUM_NODES, 2, dtype=torch.float64)
    graph, chain = two_trees(make, placed=False), make([0, 1], [1, 2], 3)
    as_batch = TreeBatch.from_dgl(graph) if make is of_dgl else TreeBatch.from_pyg(graph)
    layer(two_trees(make), feat), layer(as_batch, feat), layer(chain, feat[:3])  # in silence
    for given in ((graph, feat), (feat, torch.tensor([CHILD, PARENT]))):
        if layer_class is ChildSumTreeLSTM:
            layer(*given)
        else:
            with pytest.warns(ChildOrderWarning, match=f"the order of children matters to {layer_class.__name__}"):
                layer(*given)


@needs_dgl
def test_a_sequence_encoder_warns_of_edges_without_positions() -> None:
    vocabulary = Vocabulary(["x", "y"], [("f", 2)])
    graph, encoder = Tree("f", ["x", "y"]).to_dgl(vocabulary.labels), LSTM(3, vocabulary)
    encoder(graph)
    del graph.edata["position"]
    with pytest.warns(ChildOrderWarning, match="the order of children matters to LSTM"):
        encoder(graph)


@pytest.mark.parametrize(
    ("graph", "num_features", "problem"),
    [
        (([0, 1, 2], [1, 2, 0], 3), 3, "cycle"),
        (([0, 0], [1, 2], 3), 3, "node 0 has 2 parents"),
        (([0, 1], [2, 2], 3, [0, 2]), 3, "node 2 has 2 children at the positions 0, 2"),
        (([0, 1], [2, 2], 3), 7, r"feat must be \[3, .*, not \[7, "),
        (([0, 1, 2], [3, 3, 3], 4), 4, "node 3 has 3 children.* add 3 to its arities"),
    ],
)
@every_library
def test_graphs_that_do_not_fit_are_refused(make: GraphMaker, graph: Any, num_features: int, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        layer_of()(make(*graph), torch.zeros(num_features, 2))


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: layer_of()(of_pyg([0, 5], [2, 2], 3), torch.zeros(3, 2)), GraphError, "edge 1 touches node 5"),
        (lambda: TreeBatch.from_pyg(of_pyg([-1], [0], 1), VOCABULARY), GraphError, "edge 0 touches node -1"),
        (lambda: layer_of()(set(), torch.zeros(0, 2)), GraphError, "a TreeBatch, .* not set"),
        (lambda: layer_of()([], torch.zeros(0, 2)), GraphError, "trees need a vocabulary"),
        (lambda: layer_of()(torch.zeros(3, 2)), GraphError, r"layer\(x, edge_index\)"),
        (lambda: TreeLSTM(3, VOCABULARY)(two_trees(of_pyg)), (GraphError, VocabularyError), "label"),
        (lambda: TreeLSTM(3, VOCABULARY)(TreeBatch.from_pyg(two_trees(of_pyg))), VocabularyError, "no labels"),
        (lambda: layer_of()(of_pyg([0], [1], 2), torch.zeros(2, 2), keep="roots"), RecipeError, "keep='roots'"),
    ],
)
def test_what_is_no_graph_of_the_layer_is_refused(run: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        run()


def test_a_layer_takes_features_and_an_edge_index() -> None:
    layer, feat = layer_of(), torch.randn(4, 2, dtype=torch.float64)
    edge_index = torch.tensor([[1, 0, 3], [2, 2, 1]])  # 2 has the children 1 and 0, and 1 has 3
    batch = TreeBatch.from_edge_index(edge_index, 4)
    torch.testing.assert_close(layer(feat, edge_index), layer(batch, feat).h)
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


def test_a_batch_of_labelled_trees_its_graph_and_the_batch_of_their_graphs_agree() -> None:
    torch.manual_seed(0)
    layer, forest = StackTreeLSTM(3, VOCABULARY).double(), random_forest(seed=8, num_trees=6, size=10, widest=3)
    batch = TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=2)
    graph = batch.to_pyg()
    assert (graph.num_graphs, graph.kind.shape) == (6, (batch.num_nodes,))
    torch.testing.assert_close(layer(graph), layer(batch).h)
    graphs = data.Batch.from_data_list([tree.to_pyg(VOCABULARY.labels) for tree in forest])
    collated = TreeBatch.from_pyg(graphs, VOCABULARY, trees_per_example=2)
    torch.testing.assert_close(layer(collated).root, layer(batch).root)
    for network in (LSTM, partial(SPINN, transitions="gold")):
        encoder = network(4, VOCABULARY)
        torch.testing.assert_close(encoder(graphs).root[:, 0], encoder(batch).root.flatten(0, 1))


def test_the_loader_of_pyg_makes_batches_of_trees() -> None:
    loader = pytest.importorskip("torch_geometric.loader")
    graphs = [tree.to_pyg(VOCABULARY.labels) for tree in random_forest(seed=3, num_trees=5, size=6)]
    batches = [TreeBatch.from_pyg(batch, VOCABULARY) for batch in loader.DataLoader(graphs, batch_size=2)]
    assert [batch.num_trees for batch in batches] == [2, 2, 1]


def test_a_batch_made_from_a_graph_goes_back_with_its_nodes_as_they_were() -> None:
    numbered = Tree("add", [Tree(NUMBER, value=2.5), Tree("x")])
    batch = TreeBatch.from_trees([*random_forest(seed=5, num_trees=4, size=9, widest=3), numbered], VOCABULARY)
    again = TreeBatch.from_pyg(TreeBatch.from_pyg(batch.to_pyg(), VOCABULARY).to_pyg(), VOCABULARY)
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY)
    torch.testing.assert_close(layer(again).h, layer(batch).h)
    shuffled = TreeBatch.from_pyg(two_trees(of_pyg)).to_pyg()
    back = zip(*shuffled.edge_index.tolist(), shuffled.position.tolist(), strict=True)
    assert {*back} == {*zip(CHILD, PARENT, POSITION, strict=True)}


@every_library
def test_a_node_of_several_parents_is_taken_where_it_is_allowed(make: GraphMaker) -> None:
    graph = make([0, 0, 1, 2], [1, 2, 3, 3], 4, [0, 0, 1, 0])  # 3 has the children 2 and 1, and these have 0
    read = TreeBatch.from_dgl if make is of_dgl else TreeBatch.from_pyg
    layer, feat = layer_of(node_features=True), torch.randn(4, 2, dtype=torch.float64)
    found = layer(read(graph, allow_several_parents=True), feat).root
    expected, other = (
        layer(TreeBatch(Schedule.from_edges(4, source, [1, 2, 3, 3], allow_several_parents=True), None), feat).root
        for source in ([0, 0, 2, 1], [0, 0, 1, 2])
    )
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, other)
