"""Trees in and out of DGL graphs whose edges run from child to parent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError
from treemem.trees.edges import (
    GraphEdges,
    check_trees_of_graphs,
    edges_of_forest,
    forest_from_fields,
    labels_in_table,
    only_tree,
    read_field,
)
from treemem.trees.forest import Forest
from treemem.trees.postorder import offsets
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    import dgl


def read_edges(graph: dgl.DGLGraph) -> GraphEdges:
    """The edges of ``graph``.

    Raises:
        GraphError: it is no DGL graph, has several sorts of nodes or edges, or positions that are no integers.
    """
    if not isinstance(graph, import_dgl().DGLGraph):
        raise GraphError(f"a DGLGraph is needed, not {type(graph).__name__}")
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        raise GraphError(
            f"the graph has node types {graph.ntypes} and edge types {graph.etypes}, and trees have one of each. "
            "Make it homogeneous with dgl.to_homogeneous(graph, ndata=['label'], edata=['position'])"
        )
    source, target = graph.edges(order="eid")
    position = read_field(graph.edata, "position", "iu")
    return GraphEdges(source.cpu().numpy().astype(np.int64), target.cpu().numpy().astype(np.int64), position)


def graphs_begin(graph: dgl.DGLGraph) -> NDArray[np.int64]:
    """Where the nodes of each graph of a batched graph begin, and the end of all."""
    return offsets(graph.batch_num_nodes().cpu().numpy())


def forest_to_dgl(forest: Forest, label: NDArray[np.integer] | None = None) -> dgl.DGLGraph:
    """One batched graph with one graph a tree; its nodes are those of ``forest``, in that order.

    Args:
        forest: the trees.
        label: ``[nodes]``, what the node field ``label`` is to hold; by default indices into ``forest.labels``.

    Returns:
        A graph with edges from child to parent, node field ``label`` and, where there are values, ``value``, edge field
        ``position``.
    """
    dgl = import_dgl()
    import torch

    source, target, position = (torch.from_numpy(part) for part in edges_of_forest(forest))
    graph = dgl.graph((source, target), num_nodes=forest.num_nodes)
    num_nodes = torch.from_numpy(np.diff(forest.begin))
    graph.set_batch_num_nodes(num_nodes)
    graph.set_batch_num_edges(num_nodes - 1)
    graph.ndata["label"] = torch.from_numpy(np.array(forest.label if label is None else label, np.int64))
    if forest.value is not None:
        graph.ndata["value"] = torch.from_numpy(forest.value.copy())
    graph.edata["position"] = position
    return graph


def forest_from_dgl(graph: dgl.DGLGraph, labels: Sequence[str]) -> Forest:
    """The trees of a graph, in the order of their roots' ids.

    A batch of several graphs must hold one tree in each, so that tree ``i`` is graph ``i``.

    Args:
        graph: edges run from child to parent; node field ``label`` holds indices into ``labels``, ``value`` the numbers
            of leaves (NaN for none); edge field ``position`` the child's place, by default the order of edge ids.
        labels: the distinct labels.

    Raises:
        GraphError: a cycle, a node of two parents, positions with a gap, a label outside ``labels``, or a graph of a
            batch without a tree or with several.
    """
    edges = read_edges(graph)
    check_trees_of_graphs(graphs_begin(graph), edges.source)
    return forest_from_fields(edges, graph.ndata, labels)


def tree_to_dgl(tree: Tree, labels: Sequence[str]) -> dgl.DGLGraph:
    """A graph of one tree, nodes in post-order; fields as :func:`forest_to_dgl` writes them.

    Args:
        tree: the tree.
        labels: the labels that the node field ``label`` indexes.

    Raises:
        VocabularyError: a label of the tree is not among ``labels``.
    """
    forest = Forest.from_trees([tree])
    return forest_to_dgl(forest, labels_in_table(forest, labels))


def tree_from_dgl(graph: dgl.DGLGraph, labels: Sequence[str]) -> Tree:
    """The tree of a graph that holds exactly one; see :func:`forest_from_dgl`.

    Raises:
        GraphError: as there, or the graph holds no tree or several.
    """
    return only_tree(forest_from_dgl(graph, labels), "; forest_from_dgl reads any number")
