"""A batch of trees, ready to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.device_copy import to_device
from treemem.errors import GraphError
from treemem.schedule.graph_batch import graph_of_trees, schedule_of_dgl, schedule_of_graph
from treemem.schedule.pyg_batch import pyg_of_trees
from treemem.schedule.schedule import Schedule
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.edges import GraphEdges
from treemem.trees.forest import Forest
from treemem.trees.pyg_bridge import check_edge_index, read_pyg_edges
from treemem.trees.tokens import TokenForm, forest_tokens
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    import dgl
    from torch_geometric.data import Data


class TreeBatch:
    """A batch of trees with its order of computation, the schedule.

    Make one with :meth:`from_trees`, :meth:`from_forest`, :meth:`from_index`, :meth:`from_dgl`, :meth:`from_pyg` or
    :meth:`from_edge_index`.

    An example has ``trees_per_example`` trees, such as the two sides of an equation, or premise and hypothesis. They
    are adjacent: example ``i`` of pairs has the trees ``2 * i`` and ``2 * i + 1``. Outputs have one entry per node, in
    the order of the forest or graph that the batch was made from. The schedule has one row per distinct subtree.

    Attributes:
        schedule: the order of computation, on the batch's device.
        vocabulary: the ids of the labels; None for graphs without labels.
        trees_per_example: number of trees in an example.
        example_ids: int64 ``[examples]``, index of each example in the data, for batches of a loader; otherwise None.

    Example:
        >>> from treemem.trees.tree import Tree
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> batch.num_trees, batch.num_nodes, batch.schedule.num_rows
        (2, 4, 3)
    """

    def __init__(
        self,
        schedule: Schedule,
        vocabulary: Vocabulary | None,
        *,
        trees_per_example: int = 1,
        forest: Forest | None = None,
        trees: NDArray[np.int64] | slice = slice(None),
        graph: dgl.DGLGraph | None = None,
        example_ids: NDArray[np.int64] | None = None,
    ) -> None:
        if trees_per_example < 1 or schedule.num_trees % trees_per_example:
            raise GraphError(
                f"{schedule.num_trees} trees cannot be split into examples of {trees_per_example} trees each"
            )
        self.schedule = schedule
        self.vocabulary = vocabulary
        self.trees_per_example = trees_per_example
        self.example_ids = example_ids
        self._source = forest, trees
        self._given_graph = graph

    @classmethod
    def from_trees(
        cls,
        trees: Iterable[Tree],
        vocabulary: Vocabulary,
        *,
        trees_per_example: int = 1,
        share_subtrees: bool = True,
    ) -> TreeBatch:
        """A batch of these trees.

        Args:
            trees: the trees; the trees of one example adjacent.
            vocabulary: what their labels mean.
            trees_per_example: how many trees make an example.
            share_subtrees: whether equal subtrees are computed once.

        Raises:
            VocabularyError: a label that the vocabulary does not know.
            GraphError: a number of trees that ``trees_per_example`` does not divide.
        """
        forest = Forest.from_trees(trees)
        return cls.from_forest(forest, vocabulary, trees_per_example=trees_per_example, share_subtrees=share_subtrees)

    @classmethod
    def from_forest(
        cls, forest: Forest, vocabulary: Vocabulary, *, trees_per_example: int = 1, share_subtrees: bool = True
    ) -> TreeBatch:
        """A batch of all trees of ``forest``; see :meth:`from_trees`."""
        index = SubtreeIndex(forest, vocabulary)
        schedule = Schedule.from_index(index, share_subtrees=share_subtrees)
        return cls(schedule, vocabulary, trees_per_example=trees_per_example, forest=forest)

    @classmethod
    def from_index(
        cls,
        index: SubtreeIndex,
        examples: ArrayLike | slice | None = None,
        *,
        trees_per_example: int = 1,
        share_subtrees: bool = True,
    ) -> TreeBatch:
        """A batch of some examples of an indexed forest: the fast way to many batches of the same trees.

        Args:
            index: the forest's subtrees.
            examples: numbers of examples in the order wanted, a slice or a boolean mask; all by default.
            trees_per_example: how many trees make an example.
            share_subtrees: whether equal subtrees are computed once.

        Raises:
            GraphError: an example that the forest does not have.
        """
        num_trees = len(index.forest)
        if trees_per_example < 1 or num_trees % trees_per_example:
            raise GraphError(f"{num_trees} trees cannot be split into examples of {trees_per_example} trees each")
        chosen = choose_examples(examples, num_trees // trees_per_example)
        trees = (chosen[:, None] * trees_per_example + np.arange(trees_per_example)).ravel()
        schedule = Schedule.from_index(index, trees, share_subtrees)
        return cls(
            schedule,
            index.vocabulary,
            trees_per_example=trees_per_example,
            forest=index.forest,
            trees=trees,
            example_ids=chosen,
        )

    @classmethod
    def from_dgl(
        cls,
        graph: dgl.DGLGraph,
        vocabulary: Vocabulary | None = None,
        *,
        labels: Sequence[str] | None = None,
        trees_per_example: int = 1,
        allow_several_parents: bool = False,
    ) -> TreeBatch:
        """The batch of the trees of a graph whose edges run from child to parent; each node has a row of its own.

        The trees are in the order of their roots' ids; a root is a node without a parent. Nodes keep their ids. The
        graph may be batched.

        Args:
            graph: a graph of trees. The edge field ``position`` gives each child's place among its parent's children;
                by default children are in the order of edge ids. With a vocabulary, the node field ``label`` says what
                each node is, and ``value`` which number a number leaf stands for; or the field ``kind`` gives kinds
                and, if the leaves are symbols, ``symbol`` their ids. Without these fields, all functions of one arity
                must share one kind.
            vocabulary: what the labels mean. Without one, kinds are the field ``kind`` or, by default, 0 for leaves and
                1, 2, ... for the arities that occur, in ascending order.
            labels: the table that ``label`` indexes; by default ``vocabulary.labels``.
            trees_per_example: how many trees make an example.
            allow_several_parents: whether a node may be the child of several nodes.

        Raises:
            GraphError: a cycle, a node of two parents, positions with a gap or a repetition, an arity that the
                vocabulary does not have, fields that do not fit.
            VocabularyError: a label that the vocabulary does not know, or not with this number of children; a number
                leaf without a finite value, or a value at another node.
        """
        schedule, own = schedule_of_dgl(graph, vocabulary, labels=labels, allow_several_parents=allow_several_parents)
        return cls(schedule, vocabulary, trees_per_example=trees_per_example, graph=own)

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        vocabulary: Vocabulary | None = None,
        *,
        labels: Sequence[str] | None = None,
        trees_per_example: int = 1,
        allow_several_parents: bool = False,
    ) -> TreeBatch:
        """The batch of the trees of a ``Data`` or of a ``Batch``, such as a ``DataLoader`` of PyG makes.

        Arguments, fields and errors are those of :meth:`from_dgl`; ``edge_index`` runs from child to parent. Nodes keep
        their numbers. Each ``Data`` that a loader is to batch needs ``num_nodes`` or ``x``.
        """
        num_nodes, edges = read_pyg_edges(data)
        schedule = schedule_of_graph(
            num_nodes, edges, data, vocabulary, labels=labels, allow_several_parents=allow_several_parents
        )
        return cls(schedule.to(data.edge_index.device), vocabulary, trees_per_example=trees_per_example)

    @classmethod
    def from_edge_index(cls, edge_index: torch.Tensor, num_nodes: int) -> TreeBatch:
        """The batch of the trees of an ``edge_index``, int64 ``[2, edges]``, from child to parent, without labels.

        Children are in the order of their edges.

        Raises:
            GraphError: another shape or type, nodes that do not exist, a cycle, or a node of two parents.
        """
        check_edge_index(edge_index)
        source, target = edge_index.cpu().numpy().astype(np.int64)
        edges = GraphEdges(source, target, None)
        schedule = schedule_of_graph(num_nodes, edges, {}, None, labels=None, allow_several_parents=False)
        return cls(schedule.to(edge_index.device), None)

    def to_pyg(self) -> Data:
        """The batch as a graph of PyG on the CPU, with the fields that :meth:`from_pyg` reads.

        Trees come as a ``Batch`` of one graph each: ``edge_index`` from child to parent, with the edge field
        ``position``; node fields ``label``, the index into ``vocabulary.labels``, ``kind`` and, where there are
        numbers, ``value``. A batch that was made from a graph, whose nodes may stand in any order, comes as one
        ``Data``, with ``symbol``, the ids of leaves, in the place of ``label``.

        Raises:
            MissingPyGError: torch-geometric cannot be imported.
        """
        return pyg_of_trees(self.forest, self.schedule, self.vocabulary)

    @cached_property
    def forest(self) -> Forest | None:
        """The trees of the batch; None for a batch made from a graph."""
        forest, trees = self._source
        return None if forest is None else forest[trees]

    @property
    def num_trees(self) -> int:
        """Number of trees."""
        return self.schedule.num_trees

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all trees."""
        return self.schedule.num_nodes

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return self.schedule.num_trees // self.trees_per_example

    def __len__(self) -> int:
        return self.num_examples

    @property
    def device(self) -> torch.device:
        """Where the schedule is."""
        return self.schedule.device

    def to(self, device: torch.device | str) -> TreeBatch:
        """This batch with its schedule on ``device``; forest and graph stay where they are."""
        forest, trees = self._source
        return TreeBatch(
            self.schedule.to(device),
            self.vocabulary,
            trees_per_example=self.trees_per_example,
            forest=forest,
            trees=trees,
            graph=self._given_graph,
            example_ids=self.example_ids,
        )

    @cached_property
    def graph(self) -> dgl.DGLGraph:
        """The batch as one batched ``DGLGraph`` on the CPU, made on first need.

        Edges run from child to parent, with the field ``position``. Node fields: ``label``, the index into
        ``vocabulary.labels``; ``kind``; ``value``, where the trees have values. Each tree is one graph of the batch.

        Raises:
            MissingDGLError: DGL cannot be imported.
        """
        if self._given_graph is not None:
            return self._given_graph
        return graph_of_trees(self.forest, self.schedule, self.vocabulary)

    def tokens(self, form: TokenForm) -> tuple[torch.Tensor, torch.Tensor]:
        """What a sequence model reads of each tree.

        Args:
            form: see :func:`treemem.trees.tokens.forest_tokens`.

        Returns:
            On the batch's device int64 ``[trees, longest]``, indices into ``token_table(vocabulary, form)``, 0 after
            the end of shorter sequences; and on the CPU the lengths, int64 ``[trees]``.

        Raises:
            GraphError: the batch was made from a graph.
        """
        if self.forest is None:
            raise GraphError(
                "a batch made from a graph has no tokens. Give the DGLGraph itself to the sequence encoder, or make"
                " a batch of its trees: TreeBatch.from_forest(forest_from_dgl(graph, labels), vocabulary); for PyG, "
                "forest_from_pyg"
            )
        token, length = forest_tokens(self.forest, form, self.vocabulary).padded()
        return to_device(torch.from_numpy(token), self.device), torch.from_numpy(length)

    def __getstate__(self) -> dict[str, Any]:
        # The slice goes along, not the forest that it was cut from; a graph made from it can be made again.
        state = {name: item for name, item in self.__dict__.items() if name not in ("forest", "graph")}
        return {**state, "_source": (self.forest, slice(None))}

    def __repr__(self) -> str:
        return (
            f"<TreeBatch of {self.num_examples} examples, {self.num_trees} trees, {self.num_nodes} nodes in "
            f"{self.schedule.num_rows} rows>"
        )


def choose_examples(examples: ArrayLike | slice | None, num_examples: int) -> NDArray[np.int64]:
    """The numbers of the chosen examples.

    Raises:
        GraphError: an example that is not there, or a choice that is neither integers nor a mask.
    """
    everything = np.arange(num_examples)
    if examples is None:
        return everything
    if isinstance(examples, slice):
        return everything[examples]
    given = np.asarray(examples)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iub" or given.ndim != 1 or (given.dtype.kind == "b" and len(given) != num_examples):
        raise GraphError(
            f"examples must be integers or a mask of {num_examples} booleans, not {given.dtype} {given.shape}"
        )
    if given.dtype.kind == "b":
        return everything[given]
    if given.min() < 0 or given.max() >= num_examples:
        raise GraphError(f"examples {given.min()} to {given.max()} are asked for; there are {num_examples}, from 0")
    return given.astype(np.int64, copy=False)
