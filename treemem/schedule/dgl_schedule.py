"""Schedules of graphs, and DGL graphs of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError
from treemem.schedule.schedule import Schedule
from treemem.trees.bridges.dgl import forest_to_dgl, read_edges
from treemem.trees.edges import GraphEdges, check_ends, forest_of_edges, plain_node_name, read_field
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import NUMBER_KIND, SYMBOL_KIND, Vocabulary, check_vocabulary, children_in_words

if TYPE_CHECKING:
    import dgl


def graph_of_trees(forest: Forest | None, schedule: Schedule, vocabulary: Vocabulary | None) -> dgl.DGLGraph:
    """The DGL graph of a batch; :attr:`treemem.schedule.TreeBatch.graph` says which fields it has.

    Raises:
        GraphError: rows are shared, and there is no forest or no vocabulary.
    """
    if forest is None or vocabulary is None:
        check_own_rows(schedule)
        source, target, position = (torch.from_numpy(part) for part in edges_of_schedule(schedule))
        graph = import_dgl().graph((source, target), num_nodes=schedule.num_nodes)
        graph.edata["position"] = position
    else:
        graph = forest_to_dgl(forest, labels_of_nodes(schedule, vocabulary))
    graph.ndata["kind"] = kinds_of_nodes(schedule)
    return graph


def check_own_rows(schedule: Schedule) -> None:
    """Raise a ``GraphError`` if nodes share rows, so that the schedule alone does not tell the edges."""
    if schedule.shared:
        raise GraphError("a batch with shared subtrees becomes a graph only with its forest and its vocabulary")


def kinds_of_nodes(schedule: Schedule) -> torch.Tensor:
    """The kind of every node, int64 ``[nodes]``, on the CPU."""
    return schedule.kind_of_row.cpu()[schedule.row_of_node.cpu()]


def symbols_of_nodes(schedule: Schedule) -> NDArray[np.int64]:
    """The index into ``vocabulary.labels`` of every node's label, -1 for number leaves, ``[nodes]``."""
    symbol = torch.cat([schedule.symbol, schedule.function]).cpu().numpy()
    return symbol[schedule.row_of_node.cpu().numpy()]


def labels_of_nodes(schedule: Schedule, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """The index into ``vocabulary.labels`` of every node's label, that of number leaves too, ``[nodes]``."""
    symbol = symbols_of_nodes(schedule)
    return symbol if vocabulary.number is None else np.where(symbol >= 0, symbol, len(vocabulary.leaves))


def values_of_nodes(schedule: Schedule) -> NDArray[np.float64]:
    """The number of every number leaf, NaN for other nodes, ``[nodes]``."""
    value = np.full(schedule.num_rows, np.nan)
    value[: schedule.num_leaf_rows] = schedule.value.cpu().numpy()
    return value[schedule.row_of_node.cpu().numpy()]


def forest_of_schedule(schedule: Schedule, vocabulary: Vocabulary) -> tuple[Forest, NDArray[np.int64]]:
    """The trees of a schedule whose nodes have rows of their own, and the node of the schedule of each of their nodes.

    Raises:
        GraphError: a node without a known label, or with several parents.
    """
    label = labels_of_nodes(schedule, vocabulary)
    if (label < 0).any():
        raise GraphError(
            f"node {int(np.argmax(label < 0))} has no label, which tokens need; give the graph the node field 'label'"
        )
    return forest_of_edges(*edges_of_schedule(schedule), vocabulary.labels, label, values_of_nodes(schedule))


def edges_of_schedule(schedule: Schedule) -> GraphEdges:
    """The edges of a schedule whose nodes have rows of their own, each with its position."""
    node_of_row = schedule.node_of_row.cpu().numpy()
    arity = schedule.arity_of_row
    first = np.repeat(np.cumsum(arity) - arity, arity)
    source = node_of_row[schedule.child.cpu().numpy()]
    return GraphEdges(source, np.repeat(node_of_row, arity), np.arange(len(first)) - first)


def schedule_of_dgl(
    graph: dgl.DGLGraph, vocabulary: Vocabulary | None, *, labels: Sequence[str] | None, allow_several_parents: bool
) -> tuple[Schedule, dgl.DGLGraph]:
    """The schedule of a DGL graph on its device, and the graph with ``position`` and ``kind``.

    Arguments and errors are those of :meth:`treemem.schedule.TreeBatch.from_dgl`.
    """
    edges = read_edges(graph)
    schedule = schedule_of_graph(
        graph.num_nodes(), edges, graph.ndata, vocabulary, labels=labels, allow_several_parents=allow_several_parents
    )
    local_graph = graph.local_var()
    _, target, position = edges
    if position is None:
        arity = np.bincount(target, minlength=graph.num_nodes())
        by_target = np.argsort(target, kind="stable")
        position = np.empty(len(target), np.int64)
        position[by_target] = np.arange(len(target)) - (np.cumsum(arity) - arity)[target[by_target]]
    local_graph.edata["position"] = torch.from_numpy(position).to(graph.device)
    local_graph.ndata["kind"] = schedule.kind_of_row[schedule.row_of_node].to(graph.device)
    return schedule.to(graph.device), local_graph


def schedule_of_graph(
    num_nodes: int,
    edges: GraphEdges,
    fields: Any,
    vocabulary: Vocabulary | None,
    *,
    labels: Sequence[str] | None,
    allow_several_parents: bool,
) -> Schedule:
    """The schedule of a graph of any library, on the CPU; see :meth:`treemem.schedule.TreeBatch.from_dgl`.

    Args:
        num_nodes: nodes are 0 to ``num_nodes - 1``.
        edges: from child to parent.
        fields: of the nodes, by name; see :func:`treemem.trees.edges.read_field`.
        vocabulary, labels, allow_several_parents: see :meth:`treemem.schedule.TreeBatch.from_dgl`.

    Raises:
        GraphError, VocabularyError: as there.
    """
    if vocabulary is not None:
        check_vocabulary(vocabulary)
    source, target, position = edges
    check_ends(num_nodes, source, target)
    arity = np.bincount(target, minlength=num_nodes)
    value = read_field(fields, "value", "iuf")
    kind, symbol = _kinds_and_symbols(fields, vocabulary, labels, arity, value)
    return Schedule.from_edges(
        num_nodes, source, target, position, kind, symbol, value, allow_several_parents=allow_several_parents
    )


def _kinds_and_symbols(
    fields: Any,
    vocabulary: Vocabulary | None,
    labels: Sequence[str] | None,
    arity: NDArray[np.int64],
    value: NDArray[np.float64] | None,
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    kind = read_field(fields, "kind", "iu")
    symbol = read_field(fields, "symbol", "iu")
    if vocabulary is None:
        if labels is not None:
            raise GraphError("labels say nothing without a vocabulary; give both, or neither")
        return kind, symbol
    label = read_field(fields, "label", "iu")
    if label is not None:
        table = tuple(labels) if labels is not None else vocabulary.labels
        wrong = (label < 0) | (label >= len(table))
        if wrong.any():
            node = int(np.argmax(wrong))
            raise GraphError(f"node {node}: its label {int(label[node])} is no index into the {len(table)} labels")
        return vocabulary.encode_nodes(table, label, arity, value, name=plain_node_name)
    if labels is not None:
        raise GraphError("the graph has no node field 'label' that could index labels")
    if kind is None:
        kind = _kinds_by_arity(vocabulary, arity, value)
    _check_kinds(vocabulary, kind, symbol, arity)
    kinds = vocabulary.kinds
    vocabulary.check_values(kind, value, name=plain_node_name, called=lambda node: kinds[kind[node]].label)
    return kind, _symbols(vocabulary, kind, symbol, arity)


def _kinds_by_arity(
    vocabulary: Vocabulary, arity: NDArray[np.int64], value: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    present, place = np.unique(arity, return_inverse=True)
    kinds_of_present = [vocabulary.kinds_of_arity.get(count, ()) if count else (SYMBOL_KIND,) for count in present]
    for count, kinds in zip(present.tolist(), kinds_of_present, strict=True):
        if len(kinds) == 1:
            continue
        node = int(np.argmax(arity == count))
        if kinds:
            raise GraphError(
                f"node {node} has {children_in_words(count)}, which may be any of {len(kinds)} kinds; the graph needs "
                "the node field 'label' or 'kind'"
            )
        known = ", ".join(str(known) for known in sorted(vocabulary.kinds_of_arity)) or "none"
        raise GraphError(
            f"node {node} has {children_in_words(count)}; the vocabulary knows inner nodes of these numbers of "
            f"children: {known}"
        )
    kind = np.array([kinds[0] for kinds in kinds_of_present], np.int64)[place]
    if vocabulary.number is not None and value is not None:
        kind[(arity == 0) & ~np.isnan(value)] = NUMBER_KIND
    return kind


def _check_kinds(
    vocabulary: Vocabulary, kind: NDArray[np.int64], symbol: NDArray[np.int64] | None, arity: NDArray[np.int64]
) -> None:
    wrong = (kind < 0) | (kind >= vocabulary.num_kinds)
    if wrong.any():
        node = int(np.argmax(wrong))
        raise GraphError(f"node {node} has kind {int(kind[node])}; the vocabulary has {vocabulary.num_kinds} kinds")
    expected = np.array([known.arity for known in vocabulary.kinds], np.int64)[kind]
    if (expected != arity).any():
        node = int(np.argmax(expected != arity))
        raise GraphError(
            f"node {node} has {children_in_words(int(arity[node]))}; its kind {vocabulary.kinds[kind[node]].label!r} "
            f"has {int(expected[node])}"
        )
    if symbol is not None:
        wrong = (symbol < -1) | (symbol >= vocabulary.num_leaves)
        wrong &= arity == 0
        if wrong.any():
            node = int(np.argmax(wrong))
            raise GraphError(f"node {node} has symbol {int(symbol[node])}; there are {vocabulary.num_leaves} leaves")


def _symbols(
    vocabulary: Vocabulary, kind: NDArray[np.int64], symbol: NDArray[np.int64] | None, arity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The symbol of every node; -1 if neither the field nor the kind tells it."""
    of_kind = vocabulary.only_symbol_of_kind[kind]
    if symbol is None:
        return of_kind
    labels = vocabulary.labels
    open_nodes = (of_kind < 0) & (arity > 0) & (symbol != -1)
    for one_kind, own_symbol in np.unique(np.stack([kind, symbol])[:, open_nodes], axis=1).T.tolist():
        if not 0 <= own_symbol < len(labels) or labels[own_symbol] not in vocabulary.labels_of_kind[one_kind]:
            node = int(np.argmax(open_nodes & (kind == one_kind) & (symbol == own_symbol)))
            raise GraphError(
                f"node {node} has symbol {own_symbol}, which is not the index of a function of "
                f"{children_in_words(int(arity[node]))} in vocabulary.labels; -1 stands for an unknown one"
            )
    return np.where(of_kind >= 0, of_kind, symbol)
