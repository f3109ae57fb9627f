"""Trees as graphs of DGL, PyG and networkx, and back."""

from __future__ import annotations

import random
import sys
from typing import Any

import networkx
import pytest
import torch
from engine_parity import needs_dgl
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import LEAVES, NUMBER, VOCABULARY, forests, trees

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError, TreememError, VocabularyError
from treemem.nn import TreeLSTM
from treemem.trees.bridges.dgl import forest_from_dgl, forest_to_dgl
from treemem.trees.bridges.pyg import MissingPyGError, forest_from_pyg, forest_to_pyg
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

LABELS = VOCABULARY.labels
PAIR = Forest.from_trees([Tree("x"), Tree("y")])
WITH_NUMBER = Tree("sub", [Tree("x"), Tree(NUMBER, value=2.5)])


class DGL:
    to_graph, from_graph = staticmethod(forest_to_dgl), staticmethod(forest_from_dgl)
    tree_to, tree_from = Tree.to_dgl, Tree.from_dgl

    @staticmethod
    def sizes(graph: Any) -> list[int]:
        return graph.batch_num_nodes().tolist()  # type: ignore[no-any-return]

    @staticmethod
    def fields(graph: Any) -> dict[str, Any]:
        return {"edges": torch.stack(graph.edges()), **graph.edata, **graph.ndata}

    @staticmethod
    def batch(graphs: list[Any]) -> Any:
        return import_dgl().batch(graphs)


class PyG:
    to_graph, from_graph = staticmethod(forest_to_pyg), staticmethod(forest_from_pyg)
    tree_to, tree_from = Tree.to_pyg, Tree.from_pyg

    @staticmethod
    def sizes(graph: Any) -> list[int]:
        assert torch.equal(graph.batch.bincount(minlength=len(graph.ptr) - 1), graph.ptr.diff())
        return graph.ptr.diff().tolist()  # type: ignore[no-any-return]

    @staticmethod
    def fields(graph: Any) -> dict[str, Any]:
        return {"edges": graph.edge_index, "position": graph.position, "label": graph.label, "value": graph.value}

    @staticmethod
    def batch(graphs: list[Any]) -> Any:
        return pyg().Batch.from_data_list(graphs)


def pyg() -> Any:
    return pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")


@pytest.fixture(params=[pytest.param(DGL, marks=needs_dgl), PyG], scope="module")
def library(request: pytest.FixtureRequest) -> Any:
    if request.param is PyG:
        pyg()
    return request.param


@given(forest=forests())
def test_forests_and_trees_come_back(library: Any, forest: Forest) -> None:
    graph = library.to_graph(forest)
    assert library.sizes(graph) == [tree.size for tree in forest]
    assert library.from_graph(graph, forest.labels) == forest
    assert [library.tree_from(library.tree_to(tree, LABELS), LABELS) for tree in forest] == list(forest)


@given(forest=forests(values=False))
def test_graphs_that_their_library_batched_are_the_same_trees(library: Any, forest: Forest) -> None:
    graphs = [library.tree_to(tree, LABELS) for tree in forest[::-1]]
    assert not graphs or library.from_graph(library.batch(graphs), LABELS) == forest[::-1]


def test_the_fields_of_a_graph(library: Any) -> None:
    fields = library.fields(library.tree_to(WITH_NUMBER, ("x", "sub", NUMBER)))
    assert fields["edges"].tolist() == [[0, 1], [2, 2]]
    assert fields["position"].tolist() == [0, 1]
    assert fields["label"].tolist() == [0, 2, 1]
    assert fields["value"].tolist()[1] == 2.5
    assert fields["value"].isnan().tolist() == [True, False, True]


def test_labels_outside_the_table_and_several_trees_are_refused(library: Any) -> None:
    for error, named, act in (
        (
            VocabularyError,
            "'xx' is not among the 4 labels given; did you mean x",
            lambda: library.tree_to(Tree("xx"), LEAVES),
        ),
        (GraphError, "node 0: its label 1 ", lambda: library.tree_from(library.tree_to(Tree("y"), ("x", "y")), ("x",))),
        (GraphError, "2 trees, not one", lambda: library.tree_from(library.to_graph(PAIR), ("x", "y"))),
        (GraphError, "is needed, not list", lambda: library.tree_from([1], LABELS)),
    ):
        with pytest.raises(error, match=named):
            act()


@needs_dgl
def test_graphs_of_dgl_of_another_form_are_refused() -> None:
    dgl = import_dgl()
    graph = dgl.graph(([0], [1]))
    with pytest.raises(GraphError, match="no node field 'label'"):
        Tree.from_dgl(graph, LABELS)
    graph.ndata["label"] = torch.zeros(2)
    with pytest.raises(GraphError, match=r"'label' must hold one integer each, not float32 of shape \(2,\)"):
        Tree.from_dgl(graph, LABELS)
    with pytest.raises(GraphError, match=r"node types \['a', 'b'\]"):
        Tree.from_dgl(dgl.heterograph({("a", "to", "b"): ([0], [0])}), LABELS)


@needs_dgl
def test_a_heterogeneous_graph_is_refused_with_the_way_out_and_the_way_out_works() -> None:
    dgl = import_dgl()
    edges = {("leaf", "first", "inner"): ([1], [0]), ("leaf", "second", "inner"): ([0], [0])}
    graph = dgl.heterograph(edges)
    tree = Tree("f", [Tree("y"), Tree("x")])
    labels = ("x", "y", "f")
    graph.nodes["leaf"].data["label"] = torch.tensor([0, 1])
    graph.nodes["inner"].data["label"] = torch.tensor([2])
    for place, name in enumerate(("first", "second")):
        graph.edges[name].data["position"] = torch.tensor([place])
    for read in (lambda: Tree.from_dgl(graph, labels), lambda: TreeLSTM(4, arities=[2], input_size=3)(graph)):
        with pytest.raises(GraphError, match=r"dgl\.to_homogeneous\(graph, ndata=\['label'\], edata=\['position'\]\)"):
            read()
    assert Tree.from_dgl(dgl.to_homogeneous(graph, ndata=["label"], edata=["position"]), labels) == tree


def test_graphs_of_pyg_of_another_form_are_refused() -> None:
    data, nothing = pyg(), torch.empty(2, 0, dtype=torch.int64)
    assert list(forest_from_pyg(data.Data(edge_index=nothing, label=torch.tensor([0, 1])), LEAVES)) == [*PAIR]
    pair = data.Data(edge_index=torch.tensor([[0], [1]]), label=torch.tensor([0, 3]))
    with pytest.warns(UserWarning, match="Unable to accurately infer 'num_nodes'"):
        batch = data.Batch.from_data_list([data.Data(edge_index=nothing, label=torch.tensor([0])), pair])
    for graph, named in (
        (batch, r"'label' has 3 entries, and the graph has 2 nodes; .* num_nodes"),
        (data.Data(edge_index=torch.tensor([[0], [1]])), "no node field 'label'"),
        (data.Data(x=torch.ones(2, 1)), "has no edge_index"),
        (data.Data(edge_index=torch.empty(2, 0)), r"integer tensor .*\. It is torch.float32 \[2, 0\]"),
        (data.HeteroData(), "of a HeteroData take the one sort of edges"),
    ):
        with pytest.raises(GraphError, match=named):
            forest_from_pyg(graph, LEAVES)


def test_a_missing_pyg_is_told_by_what_makes_graphs_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pyg()
    graph = Tree("x").to_pyg(LABELS)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingPyGError, match=r"pip install 'treemem\[pyg\]'") as caught:
        Tree("x").to_pyg(LABELS)
    assert isinstance(caught.value, TreememError)
    assert Tree.from_pyg(graph, LABELS) == Tree("x")


@given(trees(), st.randoms(use_true_random=False))
def test_names_and_the_order_of_nodes_and_edges_of_networkx_do_not_matter(tree: Tree, draw: random.Random) -> None:
    graph = tree.to_networkx()
    assert Tree.from_networkx(graph) == tree
    other = networkx.DiGraph()
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    draw.shuffle(nodes)
    draw.shuffle(edges)
    other.add_nodes_from((f"node-{name}", attributes) for name, attributes in nodes)
    other.add_edges_from((f"node-{child}", f"node-{parent}", attributes) for child, parent, attributes in edges)
    assert Tree.from_networkx(other) == tree


def graph_of(edges: list[Any], nodes: Any = "abc", **values: Any) -> networkx.DiGraph:
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes, label="f")
    graph.add_edges_from(edges)
    networkx.set_node_attributes(graph, values, "value")
    return graph


def test_the_attributes_of_networkx() -> None:
    graph = WITH_NUMBER.to_networkx()
    assert dict(graph.nodes(data=True)) == {0: {"label": "x"}, 1: {"label": NUMBER, "value": 2.5}, 2: {"label": "sub"}}
    assert list(graph.edges(data="position")) == [(0, 2, 0), (1, 2, 1)]
    plain = networkx.DiGraph([("b", "root"), ("a", "root")])  # without positions, in the order of edges
    networkx.set_node_attributes(plain, {node: node for node in plain}, "label")
    assert Tree.from_networkx(plain) == Tree("root", [Tree("b"), Tree("a")])


@pytest.mark.parametrize(
    ("graph", "named"),
    [
        (graph_of([("a", "b"), ("b", "a")]), "a cycle of 2 nodes, from child to parent: node '.' -> node '.'"),
        (graph_of([("a", "b"), ("a", "c")]), r"node 'a' has 2 parents \(node 'b', node 'c'\)"),
        (graph_of([("a", "c")]), "the graph holds 2 trees, not one"),
        (networkx.DiGraph(), "the graph holds 0 trees, not one"),
        (networkx.Graph([("a", "b")]), "the graph is undirected"),
        (networkx.DiGraph([("a", "b")]), "node 'a' needs a string as its attribute 'label'"),
        (graph_of([("a", "c", {"position": 0}), ("b", "c")]), "the edge from 'b' to 'c' has no position"),
        (
            graph_of([("a", "c", {"position": 0}), ("b", "c", {"position": 0})]),
            "'c' has 2 children at the positions 0, 0",
        ),
        (graph_of([("a", "c", {"position": "left"})]), "the position 'left' of an edge is no place"),
        (graph_of([], "a", a="two"), "node 'a': its value 'two' is no number"),
        (graph_of([], "a", a=float("inf")), "node 'a': the value inf must be finite"),
        (graph_of([("a", "b")], "ab", b=1.0), "node 'b': the value 1.0 must be finite, and only a leaf has one"),
    ],
)
def test_graphs_of_networkx_that_are_no_tree_are_refused(graph: networkx.Graph, named: str) -> None:
    with pytest.raises(GraphError, match=named):
        Tree.from_networkx(graph)
