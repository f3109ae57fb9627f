"""Trees in and out of networkx graphs whose edges run from child to parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treemem.errors import GraphError
from treemem.trees.edges import forest_of_edges, only_tree
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    import networkx


def tree_to_networkx(tree: Tree) -> networkx.DiGraph:
    """A directed graph with edges from child to parent.

    Nodes are numbered in post-order, so the root is the last. Node attributes ``label`` and, where there is one,
    ``value``; edge attribute ``position``, the child's place among its parent's children.
    """
    import networkx

    graph = networkx.DiGraph()
    roots: list[int] = []
    for number, node in enumerate(tree.postorder()):
        attributes: dict[str, Any] = {"label": node.label}
        if node.value is not None:
            attributes["value"] = node.value
        graph.add_node(number, **attributes)
        first = len(roots) - node.arity
        for position, child in enumerate(roots[first:]):
            graph.add_edge(child, number, position=position)
        roots[first:] = [number]
    return graph


def tree_from_networkx(graph: networkx.DiGraph) -> Tree:
    """The tree of a directed graph whose edges run from child to parent; nodes may be called anything.

    Args:
        graph: every node has the attribute ``label``, a number leaf also ``value``; edges have the attribute
            ``position``, or none has it and children stand in the order of the edges.

    Raises:
        GraphError: the graph is undirected or empty, holds several trees, a cycle, a node of two parents or without a
            label, or positions with a gap.
    """
    if not graph.is_directed():
        raise GraphError("the graph is undirected; a tree is a directed graph with edges from child to parent")
    names = list(graph.nodes)
    number = {name: index for index, name in enumerate(names)}

    def name_of(node: int) -> str:
        return f"node {names[node]!r}"

    edges = list(graph.edges(data=True))
    placed = [attributes["position"] for _, _, attributes in edges if "position" in attributes]
    if placed and len(placed) != len(edges):
        child, parent = next((child, parent) for child, parent, attributes in edges if "position" not in attributes)
        raise GraphError(f"the edge from {child!r} to {parent!r} has no position, and other edges have one")
    for place in placed:
        if not isinstance(place, (int, np.integer)) or abs(place) > len(edges):
            raise GraphError(f"the position {place!r} of an edge is no place among the children of a node")

    labels: dict[str, int] = {}
    label, value = np.empty(len(names), np.int64), np.full(len(names), np.nan)
    for name, attributes in graph.nodes(data=True):
        if not isinstance(attributes.get("label"), str):
            raise GraphError(f"node {name!r} needs a string as its attribute 'label'")
        label[number[name]] = labels.setdefault(attributes["label"], len(labels))
        if attributes.get("value") is not None:
            try:
                value[number[name]] = float(attributes["value"])
            except (TypeError, ValueError, OverflowError) as error:
                raise GraphError(f"node {name!r}: its value {attributes['value']!r} is no number") from error
    forest, _ = forest_of_edges(
        np.array([number[child] for child, _, _ in edges], np.int64),
        np.array([number[parent] for _, parent, _ in edges], np.int64),
        np.array(placed, np.int64) if placed else None,
        tuple(labels),
        label,
        value,
        name_of,
    )
    return only_tree(forest)
