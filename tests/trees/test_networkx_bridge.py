from __future__ import annotations

import random
from typing import Any

import networkx
import pytest
from hypothesis import given
from tree_strategies import trees

from treemem.errors import GraphError
from treemem.trees.tree import Tree

TREE = Tree("sub", [Tree("x"), Tree("Number", value=2.5)])


@given(trees())
def test_round_trip(tree: Tree) -> None:
    assert Tree.from_networkx(tree.to_networkx()) == tree


@given(trees())
def test_names_and_the_order_of_nodes_and_edges_do_not_matter(tree: Tree) -> None:
    graph = tree.to_networkx()
    generator = random.Random(0)
    other = networkx.DiGraph()
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    generator.shuffle(nodes)
    generator.shuffle(edges)
    other.add_nodes_from((f"node-{name}", attributes) for name, attributes in nodes)
    other.add_edges_from((f"node-{child}", f"node-{parent}", attributes) for child, parent, attributes in edges)
    assert Tree.from_networkx(other) == tree


def test_what_the_graph_says() -> None:
    graph = TREE.to_networkx()
    assert dict(graph.nodes(data=True)) == {
        0: {"label": "x"},
        1: {"label": "Number", "value": 2.5},
        2: {"label": "sub"},
    }
    assert list(graph.edges(data="position")) == [(0, 2, 0), (1, 2, 1)]


def test_without_positions_children_stand_in_the_order_of_edges() -> None:
    graph = networkx.DiGraph([("b", "root"), ("a", "root")])
    for node in graph:
        graph.nodes[node]["label"] = node
    assert Tree.from_networkx(graph) == Tree("root", [Tree("b"), Tree("a")])


def graph_of(edges: list[Any], nodes: str = "abc") -> networkx.DiGraph:
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes, label="f")
    graph.add_edges_from(edges)
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_of([("a", "b"), ("b", "a")]), "a cycle of 2 nodes, from child to parent: node '.' -> node '.'"),
        (graph_of([("a", "b"), ("a", "c")]), r"node 'a' has 2 parents \(node 'b', node 'c'\)"),
        (graph_of([("a", "c")]), "the graph holds 2 trees, not one"),
        (networkx.DiGraph(), "the graph holds 0 trees, not one"),
        (networkx.Graph([("a", "b")]), "the graph is undirected"),
        (networkx.DiGraph([("a", "b")]), "node 'a' needs a string as its attribute 'label'"),
        (
            graph_of([("a", "c", {"position": 0}), ("b", "c")]),
            "the edge from 'b' to 'c' has no position, and other edges have one",
        ),
        (
            graph_of([("a", "c", {"position": 0}), ("b", "c", {"position": 0})]),
            "node 'c' has 2 children at the positions 0, 0",
        ),
        (graph_of([("a", "c", {"position": "left"})]), "the position 'left' of an edge is no place"),
    ],
)
def test_graphs_that_are_no_tree_are_refused(graph: networkx.Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Tree.from_networkx(graph)


def test_values_that_are_no_numbers_or_stand_at_inner_nodes_are_refused() -> None:
    graph = TREE.to_networkx()
    graph.nodes[1]["value"] = "two"
    with pytest.raises(GraphError, match="node 1: its value 'two' is no number"):
        Tree.from_networkx(graph)
    graph.nodes[1]["value"] = float("inf")
    with pytest.raises(GraphError, match="node 1: the value inf must be finite"):
        Tree.from_networkx(graph)
    graph.nodes[1]["value"] = None
    graph.nodes[2]["value"] = 1.0
    with pytest.raises(GraphError, match=r"node 2: the value 1.0 must be finite, and only a leaf has one"):
        Tree.from_networkx(graph)
