"""The one door for what users bring: graphs, features with edges, trees and texts become batches here."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from treemem.data.token_batch import TokenBatch
from treemem.errors import ChildOrderWarning, GraphError
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.bridges.pyg import is_pyg_graph
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary


def is_graph(data: object) -> bool:
    """Return whether this is a graph, or the features of its nodes: what gives one vector a node."""
    return isinstance(data, torch.Tensor) or hasattr(data, "in_degrees") or is_pyg_graph(data)


def as_batch(
    data: Any,
    vocabulary: Vocabulary | None = None,
    feat: torch.Tensor | None = None,
    *,
    ordered_for: object | None = None,
    any_number_of_trees: bool = False,
) -> TreeBatch | TokenBatch:
    """Return what users bring as a batch that a layer reads.

    Args:
        data: a batch, which stays as it is; a ``DGLGraph`` (:meth:`TreeBatch.from_dgl`); a ``Data`` or ``Batch`` of PyG
            (:meth:`TreeBatch.from_pyg`); features ``[nodes, width]``, and ``edge_index`` in place of ``feat``
            (:meth:`TreeBatch.from_edge_index`); or a forest, or a list of trees or of texts in brackets
            (:meth:`Forest.from_trees`).
        vocabulary: the labels, with their ids; trees need it.
        feat: features of the nodes, ``[nodes, width]``; by default the batch's own.
        ordered_for: what the order of children matters to; a graph whose edges do not tell it is then warned of.
        any_number_of_trees: whether each graph of a batch of graphs may hold any number of trees. Then tree ``i`` need
            not be graph ``i``.

    Raises:
        GraphError: something else; a graph that is no forest; trees without a vocabulary.
        VocabularyError: labels that the vocabulary does not have.

    Example:
        >>> vocabulary = Vocabulary(["x", "y"], [("f", 2)])
        >>> as_batch(["(f x y)", "x"], vocabulary)
        <TreeBatch of 2 examples, 2 trees, 4 nodes in 3 rows>
    """
    if isinstance(data, TreeBatch):
        return data if feat is None else data.with_feat(feat)
    if isinstance(data, TokenBatch):
        if feat is not None:
            raise GraphError("a TokenBatch has no nodes with features; give a batch of trees")
        return data
    if not is_graph(data):
        if not isinstance(data, (Forest, list, tuple)):
            raise GraphError(
                "a layer takes a list of trees, features and edge_index, a TokenBatch, a TreeBatch, a DGLGraph or a "
                f"Data of PyG, not {type(data).__name__}"
            )
        if vocabulary is None:
            raise GraphError("trees need a vocabulary, which gives their labels ids; without labels, give a graph")
        forest = data if isinstance(data, Forest) else Forest.from_trees(data, labels=vocabulary.labels)
        return TreeBatch.from_forest(forest, vocabulary, share_subtrees=feat is None).with_feat(feat)
    if isinstance(data, torch.Tensor):
        if feat is None:
            raise GraphError("edge_index is missing; call layer(x, edge_index), or layer(batch, x)")
        batch, has_order = TreeBatch.from_edge_index(feat, len(data)).with_feat(data), False
    else:
        make: Any = TreeBatch.from_pyg if is_pyg_graph(data) else TreeBatch.from_dgl
        batch = make(data, vocabulary, any_number_of_trees=any_number_of_trees).with_feat(feat)
        has_order = "position" in (data if is_pyg_graph(data) else data.edata)
    if ordered_for is not None and not has_order and (batch.schedule.arity_of_row > 1).any():
        warnings.warn(
            f"the order of children matters to {type(ordered_for).__name__}, and the edges of the graph have no field "
            "'position'; the order of the edges is used. Set position to the place of each child, from 0; if the order "
            "of the edges is right, make the batch with TreeBatch.from_edge_index, from_dgl or from_pyg",
            ChildOrderWarning,
            stacklevel=4,
        )
    return batch
