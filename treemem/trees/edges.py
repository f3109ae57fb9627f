"""Graphs given by their edges from child to parent: whose children stand where, and how high every node is.

Here a node may have several parents where the caller allows it, so nothing relies on post-order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, VocabularyError, near_names
from treemem.trees.forest import Forest
from treemem.trees.postorder import concatenated_ranges, offsets, stable_order
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import children_in_words

_NARROW = 48
NodeName = Callable[[int], str]


class GraphEdges(NamedTuple):
    """The edges of a graph, from child to parent, in the order of their ids.

    Attributes:
        source, target: int64 ``[edges]``.
        position: int64 ``[edges]``, each child's place among its parent's children, or None where the graph does not
            say.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    position: NDArray[np.int64] | None


def plain_node_name(node: int) -> str:
    """How messages call a node that has only a number."""
    return f"node {node}"


def order_children(
    num_nodes: int,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    position: NDArray[np.int64] | None,
    *,
    allow_several_parents: bool = False,
    name: NodeName = plain_node_name,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The children of every node in their order.

    Args:
        num_nodes: nodes are 0 to ``num_nodes - 1``.
        source, target: int64 ``[edges]``, child and parent of every edge.
        position: int64 ``[edges]``, the child's place among its parent's children, from 0; by default that of its
            edge among the parent's edges.
        allow_several_parents: whether a node may be the child of several nodes, or several children of one.
        name: how messages call a node.

    Returns:
        ``pointer [num_nodes + 1]`` and ``child [edges]``; node ``j`` has ``child[pointer[j]:pointer[j + 1]]``.

    Raises:
        GraphError: lengths that differ, a node out of range, two parents, or positions that are not 0, 1, 2, ...
    """
    if not len(source) == len(target) == (len(source) if position is None else len(position)):
        raise GraphError(
            f"an edge needs a source, a target and a position; there are {len(source)} sources, {len(target)} targets"
            + ("" if position is None else f", {len(position)} positions")
        )
    check_ends(num_nodes, source, target)
    if not allow_several_parents:
        _check_parents(num_nodes, source, target, name)
    pointer = offsets(np.bincount(target, minlength=num_nodes))
    by_target = stable_order(target)
    if position is None:
        return pointer, source[by_target]
    rank = np.arange(len(source)) - pointer[target[by_target]]
    if np.array_equal(position[by_target], rank):
        return pointer, source[by_target]
    num_children = np.diff(pointer)[target]
    slot = pointer[target] + position
    is_taken = np.zeros(len(source), bool)
    within = (position >= 0) & (position < num_children)
    is_taken[slot[within]] = True
    if not is_taken.all():
        parent = int(np.searchsorted(pointer, int(np.argmin(is_taken)), side="right")) - 1
        positions = sorted(position[target == parent].tolist())
        shown = ", ".join(str(place) for place in positions[:8]) + (", ..." if len(positions) > 8 else "")
        raise GraphError(
            f"{name(parent)} has {children_in_words(len(positions))} at the positions {shown}; they must be 0 to "
            f"{len(positions) - 1}, each once"
        )
    child = np.empty(len(source), np.int64)
    child[slot] = source
    return pointer, child


def check_trees_of_graphs(
    begin: NDArray[np.int64] | None, source: NDArray[np.int64], trees_per_example: int = 1
) -> None:
    """Make sure that the trees of a batch of graphs can be told apart by their graphs.

    Each graph must hold one tree, or each of them an example. One graph may hold any number of trees.

    Args:
        begin: where the nodes of each graph begin, and the end of all, ``[graphs + 1]``; None for one graph.
        source: the child of every edge.
        trees_per_example: number of trees of an example.

    Raises:
        GraphError: a graph holds another number of trees; the message names it.
    """
    if begin is None or len(begin) <= 2:
        return
    is_root = np.ones(int(begin[-1]), bool)
    is_root[source] = False
    count = np.diff(offsets(is_root)[begin])
    for wanted in {1, trees_per_example}:
        if (count == wanted).all():
            return
    wanted = trees_per_example if count[0] == trees_per_example else 1
    graph = int(np.argmax(count != wanted))
    trees = f"{wanted} tree" + "s" * (wanted != 1)
    raise GraphError(
        f"graph {graph} of the batch holds {int(count[graph])} trees, so that rows would belong to other graphs; batch "
        f"graphs with {trees} each, or give several trees of a graph as examples with trees_per_example"
    )


def check_ends(num_nodes: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
    """Make sure that every edge runs from a node to a node.

    Raises:
        GraphError: one does not.
    """
    for ends in (source, target):
        outside = (ends < 0) | (ends >= num_nodes)
        if outside.any():
            edge = int(np.argmax(outside))
            raise GraphError(f"edge {edge} touches node {int(ends[edge])}; there are {num_nodes} nodes, from 0")


def _check_parents(num_nodes: int, source: NDArray[np.int64], target: NDArray[np.int64], name: NodeName) -> None:
    num_parents = np.bincount(source, minlength=num_nodes)
    if (num_parents > 1).any():
        node = int(np.argmax(num_parents > 1))
        parents = [name(int(parent)) for parent in target[source == node][:3]]
        if node in target[source == node]:
            raise GraphError(f"{name(node)} has an edge to itself; remove such edges (dgl.remove_self_loop)")
        if ((source == target[source == node][0]) & (target == node)).any():
            raise GraphError(f"{name(node)} has edges to and from {parents[0]}; keep those from child to parent alone")
        raise GraphError(
            f"{name(node)} has {int(num_parents[node])} parents ({', '.join(parents)}); in a tree it has one, and "
            "edges run from child to parent"
        )


def find_edge_heights(
    pointer: NDArray[np.int64], child: NDArray[np.int64], name: NodeName = plain_node_name
) -> NDArray[np.int64]:
    """Longest way from each node down to a leaf.

    The nodes of one height are found together. Once few are left to a height, as on a chain, it goes on node by node,
    so the cost is linear in nodes and edges for any shape.

    Args:
        pointer, child: what :func:`order_children` returns.
        name: how messages call a node.

    Raises:
        GraphError: a cycle.
    """
    num_nodes = len(pointer) - 1
    pending = np.diff(pointer)
    by_child = stable_order(child)
    parent = np.repeat(np.arange(num_nodes), pending)[by_child]
    parent_pointer = offsets(np.bincount(child, minlength=num_nodes))
    height = np.full(num_nodes, -1, np.int64)

    frontier, level = np.flatnonzero(pending == 0), 0
    while len(frontier) >= _NARROW:
        height[frontier] = level
        num_parents = parent_pointer[frontier + 1] - parent_pointer[frontier]
        parents = parent[concatenated_ranges(parent_pointer[frontier], num_parents)]
        np.subtract.at(pending, parents, 1)
        frontier, level = np.unique(parents[pending[parents] == 0]), level + 1
    if len(frontier):
        _climb(frontier.tolist(), level, height, pending, parent_pointer, parent)
    if (height < 0).any():
        cycle = _find_cycle(int(np.argmax(height < 0)), height, pointer, child)
        if len(cycle) == 1:
            raise GraphError(f"{name(cycle[0])} has an edge to itself; remove it, because trees have no self-loops")
        shown = " -> ".join(name(node) for node in [*cycle[:6], cycle[0]])
        raise GraphError(f"a cycle of {len(cycle)} nodes, from child to parent: {shown}")
    return height


def _climb(
    frontier: list[int],
    level: int,
    height: NDArray[np.int64],
    pending: NDArray[np.int64],
    parent_pointer: NDArray[np.int64],
    parent: NDArray[np.int64],
) -> None:
    heights, waiting = height.tolist(), pending.tolist()
    bounds, parents = parent_pointer.tolist(), parent.tolist()
    while frontier:
        ready = []
        for node in frontier:
            heights[node] = level
            for above in parents[bounds[node] : bounds[node + 1]]:
                waiting[above] -= 1
                if not waiting[above]:
                    ready.append(above)
        frontier, level = ready, level + 1
    height[:] = heights


def _find_cycle(
    start: int, height: NDArray[np.int64], pointer: NDArray[np.int64], child: NDArray[np.int64]
) -> list[int]:
    """The nodes of a cycle, each followed by its parent; a node without height always has a child without one."""
    seen: dict[int, int] = {}
    path: list[int] = []
    node = start
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        below = child[pointer[node] : pointer[node + 1]]
        node = int(below[height[below] < 0][0])
    return path[seen[node] :][::-1]


def forest_of_edges(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    position: NDArray[np.int64] | None,
    labels: tuple[str, ...],
    label: NDArray[np.int64],
    value: NDArray[np.float64] | None,
    name: NodeName = plain_node_name,
) -> tuple[Forest, NDArray[np.int64]]:
    """The trees of a graph, in the order of their roots' numbers; and the number in the graph of each of their nodes.

    Args:
        source, target, position: as for :func:`order_children`.
        labels: the distinct labels.
        label: ``[nodes]``, index into ``labels``.
        value: ``[nodes]``, NaN for none.
        name: how messages call a node.

    Raises:
        GraphError: the edges do not make trees, or a label is outside ``labels``.
    """
    num_nodes = len(label)
    wrong = (label < 0) | (label >= len(labels))
    if wrong.any():
        node = int(np.argmax(wrong))
        raise GraphError(f"{name(node)}: its label {int(label[node])} is no index into the {len(labels)} labels")
    pointer, child = order_children(num_nodes, source, target, position, name=name)
    find_edge_heights(pointer, child, name)
    is_root = np.ones(num_nodes, bool)
    is_root[source] = False
    bounds, children = pointer.tolist(), child.tolist()
    order, pending = [], np.flatnonzero(is_root).tolist()
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(children[bounds[node] : bounds[node + 1]])
    postorder = np.array(order[::-1], np.int64)
    if value is not None and (np.isinf(value) | (~np.isnan(value) & (np.diff(pointer) > 0))).any():
        node = int(np.argmax(np.isinf(value) | (~np.isnan(value) & (np.diff(pointer) > 0))))
        raise GraphError(f"{name(node)}: the value {value[node]} must be finite, and only a leaf has one")
    forest = Forest.from_arrays(
        labels,
        label[postorder],
        np.diff(pointer)[postorder],
        np.concatenate([np.zeros(1, np.int64), np.flatnonzero(is_root[postorder]) + 1]),
        None if value is None else value[postorder],
    )
    return forest, postorder


def read_field(fields: Any, name: str, sorts: str) -> NDArray[Any] | None:
    """One number a node or edge; None where there is no such field.

    Args:
        fields: the fields of a graph by their names, as tensors: ``graph.ndata`` or ``graph.edata`` of DGL, a ``Data``
            of PyG.
        name: which of them.
        sorts: numpy's letters of the types allowed: ``"iu"`` for integers, with ``"f"`` floating-point numbers too.

    Raises:
        GraphError: the field has another shape or type.
    """
    if name not in fields:
        return None
    field = fields[name].detach().cpu().numpy()
    if field.ndim != 1 or field.dtype.kind not in sorts:
        what = "integer" if sorts == "iu" else "number"
        raise GraphError(f"the field {name!r} must hold one {what} each, not {field.dtype} of shape {field.shape}")
    return field.astype(np.float64 if "f" in sorts else np.int64)


def forest_from_fields(edges: GraphEdges, fields: Any, labels: Sequence[str]) -> Forest:
    """The trees of a graph whose nodes have the fields ``label`` and, where there are numbers, ``value``.

    Args:
        edges: of the graph.
        fields: of its nodes, see :func:`read_field`.
        labels: what ``label`` indexes.

    Raises:
        GraphError: as :func:`forest_of_edges` and :func:`read_field` raise it, or there is no ``label``.
    """
    label = read_field(fields, "label", "iu")
    if label is None:
        raise GraphError("the graph has no node field 'label'; it must hold an index into labels for every node")
    value = read_field(fields, "value", "iuf")
    return forest_of_edges(*edges, tuple(labels), label, value)[0]


def only_tree(forest: Forest, remedy: str = "") -> Tree:
    """The tree of a graph that holds exactly one.

    Raises:
        GraphError: it holds another number.
    """
    if len(forest) != 1:
        raise GraphError(f"the graph holds {len(forest)} trees, not one{remedy}")
    return forest[0]


def edges_of_forest(forest: Forest) -> GraphEdges:
    """The edges of all trees, each with its position; nodes are those of ``forest``, in that order."""
    pointer, child = forest.children()
    target = np.repeat(np.arange(forest.num_nodes), forest.arity)
    return GraphEdges(child.copy(), target, np.arange(len(child)) - np.repeat(pointer[:-1], forest.arity))


def labels_in_table(forest: Forest, labels: Sequence[str]) -> NDArray[np.int64]:
    """The index into ``labels`` of every node's label, ``[nodes]``.

    Raises:
        VocabularyError: a label of the trees is not among ``labels``.
    """
    known = {label: index for index, label in enumerate(labels)}
    for label in forest.labels:
        if label not in known:
            raise VocabularyError(f"{label!r} is not among the {len(known)} labels given{near_names(label, known)}")
    return np.array([known[label] for label in forest.labels], np.int64)[forest.label]
