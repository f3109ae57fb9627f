"""Trees in and out of PyG graphs (``torch_geometric.data``) whose edges run from child to parent."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, TreememError
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
    from torch_geometric.data import Batch, Data

_NODE_FIELDS = ("label", "kind", "symbol", "value")


class MissingPyGError(TreememError, ImportError):
    """torch-geometric is needed for what was asked and cannot be imported."""


def import_pyg_data() -> ModuleType:
    """``torch_geometric.data``, imported on first need; graphs are read without it.

    Raises:
        MissingPyGError: torch-geometric is not installed, or fails to import.
    """
    try:
        import torch_geometric.data
    except (ImportError, OSError) as error:
        raise MissingPyGError(
            f"graphs of PyG need torch-geometric, which cannot be imported: {error} (pip install 'treemem[pyg]')"
        ) from error
    return torch_geometric.data


def is_pyg_graph(graph: object) -> bool:
    """Whether ``graph`` is a ``Data`` or ``Batch`` of PyG, which need not be imported for that."""
    return hasattr(graph, "edge_index") and hasattr(graph, "keys")


def read_pyg_edges(data: Data) -> tuple[int, GraphEdges]:
    """The number of nodes of a ``Data`` or a ``Batch``, and its edges.

    PyG knows the number from ``num_nodes``, ``x`` and a few more; without them, the fields that trees have tell it.

    Raises:
        GraphError: it is no graph of one sort of nodes and edges, has no ``edge_index`` of integers or positions that
            are no integers, or fields of another length than the nodes, as a batch of graphs without ``num_nodes`` has.
    """
    if not is_pyg_graph(data):
        raise GraphError(
            f"a Data or Batch of torch_geometric with edge_index is needed, not {type(data).__name__}"
            + (
                "; of a HeteroData take the one sort of edges that makes the trees"
                if hasattr(data, "edge_types")
                else ""
            )
        )
    index = data.edge_index
    if index is None:
        raise GraphError("the graph has no edge_index; it must hold child and parent of every edge, [2, edges]")
    check_edge_index(index)
    source, target = index.detach().cpu().numpy().astype(np.int64)
    position = read_field(data, "position", "iu")
    return _number_of_nodes(data, source, target), GraphEdges(source, target, position)


def pyg_graphs_begin(data: Data) -> NDArray[np.int64] | None:
    """Where the nodes of each graph of a ``Batch`` begin, and the end of all; None for one graph."""
    if "ptr" in data:
        begin: NDArray[np.int64] = data.ptr.cpu().numpy().astype(np.int64)
        return begin
    return offsets(np.bincount(data.batch.cpu().numpy())) if "batch" in data else None


def check_edge_index(index: Any) -> None:
    """Raise a ``GraphError`` if ``index`` is not a tensor of integers ``[2, edges]``."""
    what = "edge_index must be an integer tensor [2, edges]: the child of each edge, then its parent. It is"
    if not hasattr(index, "is_floating_point"):
        raise GraphError(f"{what} a {type(index).__name__}")
    is_integer = not index.is_floating_point() and not index.is_complex() and str(index.dtype) != "torch.bool"
    if index.dim() != 2 or index.shape[0] != 2 or not is_integer:
        raise GraphError(f"{what} {index.dtype} {list(index.shape)}")


def _number_of_nodes(data: Data, source: NDArray[np.int64], target: NDArray[np.int64]) -> int:
    lengths = {name: len(data[name]) for name in _NODE_FIELDS if name in data}
    with warnings.catch_warnings(record=True) as guesses:  # PyG warns where it only guesses from the edges
        warnings.simplefilter("always")
        count = data.num_nodes
    if guesses or count is None:
        count = next(iter(lengths.values()), int(max(source.max(initial=-1), target.max(initial=-1))) + 1)
    for name, length in lengths.items():
        if length != count:
            raise GraphError(
                f"the field {name!r} has {length} entries, and the graph has {count} nodes; where graphs are batched, "
                "give each Data num_nodes or x, for without them PyG guesses from its edges"
            )
    return int(count)


def forest_to_pyg(forest: Forest, label: NDArray[np.integer] | None = None) -> Batch:
    """One batch with one graph a tree; its nodes are those of ``forest``, in that order.

    A list of graphs, as a ``DataLoader`` of PyG reads it, is ``[tree_to_pyg(tree, labels) for tree in forest]``.

    Args:
        forest: the trees.
        label: ``[nodes]``, what the field ``label`` is to hold; by default indices into ``forest.labels``.

    Returns:
        A batch with ``edge_index`` from child to parent, the node field ``label`` and, where there are values,
        ``value``, the edge field ``position``, and PyG's ``batch`` and ``ptr``.

    Raises:
        MissingPyGError: there is no torch-geometric.
    """
    batch = import_pyg_data().Batch(**_fields(edges_of_forest(forest), forest.num_nodes))
    import torch

    batch.label = torch.from_numpy(np.array(forest.label if label is None else label, np.int64))
    if forest.value is not None:
        batch.value = torch.from_numpy(forest.value.copy())
    batch.batch = torch.repeat_interleave(torch.from_numpy(np.diff(forest.begin)))
    batch.ptr = torch.from_numpy(np.array(forest.begin, np.int64))
    return batch


def graph_to_pyg(num_nodes: int, edges: GraphEdges) -> Data:
    """A graph of PyG with these edges and the edge field ``position``.

    Raises:
        MissingPyGError: there is no torch-geometric.
    """
    return import_pyg_data().Data(**_fields(edges, num_nodes))


def _fields(edges: GraphEdges, num_nodes: int) -> dict[str, Any]:
    import torch

    fields = {"edge_index": torch.from_numpy(np.stack([edges.source, edges.target])), "num_nodes": num_nodes}
    return fields if edges.position is None else {**fields, "position": torch.from_numpy(edges.position)}


def forest_from_pyg(data: Data, labels: Sequence[str]) -> Forest:
    """The trees of a ``Data`` or a ``Batch``, in the order of their roots' numbers.

    A ``Batch`` of several graphs must hold one tree in each, so that tree ``i`` is graph ``i``.

    Args:
        data: ``edge_index`` runs from child to parent; the field ``label`` holds indices into ``labels``, ``value`` the
            numbers of leaves (NaN for none), ``position`` the child's place, by default the order of the edges.
        labels: the distinct labels.

    Raises:
        GraphError: a cycle, a node of two parents, positions with a gap, a label outside ``labels``, or a graph of a
            batch without a tree or with several.
    """
    _, edges = read_pyg_edges(data)
    check_trees_of_graphs(pyg_graphs_begin(data), edges.source)
    return forest_from_fields(edges, data, labels)


def tree_to_pyg(tree: Tree, labels: Sequence[str]) -> Data:
    """A graph of one tree, nodes in post-order; fields as :func:`forest_to_pyg` writes them, ``value`` always.

    Args:
        tree: the tree.
        labels: the labels that the field ``label`` indexes.

    Raises:
        VocabularyError: a label of the tree is not among ``labels``.
        MissingPyGError: there is no torch-geometric.
    """
    import torch

    forest = Forest.from_trees([tree])
    data = graph_to_pyg(forest.num_nodes, edges_of_forest(forest))
    data.label = torch.from_numpy(labels_in_table(forest, labels))
    values = np.full(forest.num_nodes, np.nan) if forest.value is None else forest.value.copy()
    data.value = torch.from_numpy(values)  # in every graph, since PyG batches the fields of the first one
    return data


def tree_from_pyg(data: Data, labels: Sequence[str]) -> Tree:
    """The tree of a graph that holds exactly one; see :func:`forest_from_pyg`.

    Raises:
        GraphError: as there, or the graph holds no tree or several.
    """
    return only_tree(forest_from_pyg(data, labels), "; forest_from_pyg reads any number")
