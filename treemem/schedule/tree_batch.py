"""A batch of trees, ready to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.device_copy import pinned_together, to_device
from treemem.errors import GraphError
from treemem.schedule.dgl_schedule import forest_of_schedule, graph_of_trees, schedule_of_dgl, schedule_of_graph
from treemem.schedule.pyg_schedule import pyg_of_trees, schedule_of_pyg
from treemem.schedule.schedule import Schedule
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.bridges.dgl import graphs_begin, read_edges
from treemem.trees.bridges.pyg import check_edge_index, pyg_graphs_begin, read_pyg_edges
from treemem.trees.edges import GraphEdges, check_trees_of_graphs
from treemem.trees.forest import Forest
from treemem.trees.tokens import TokenForm, forest_tokens
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    import dgl
    from torch_geometric.data import Data


class TreeBatch:
    """A batch of trees, with the schedule: the order in which a layer computes them.

    Make one with :meth:`from_trees`, :meth:`from_forest`, :meth:`from_index`, :meth:`from_dgl`, :meth:`from_pyg` or
    :meth:`from_edge_index`.

    An example has ``trees_per_example`` trees, such as the two sides of an equation, or premise and hypothesis. The
    trees of an example are adjacent: example ``i`` of pairs has the trees ``2 * i`` and ``2 * i + 1``. Outputs have one
    entry per node, in the order of the forest or graph that the batch was made from. The schedule has one row per
    distinct subtree.

    Attributes:
        schedule: the order of computation, on the batch's device.
        vocabulary: the ids of the labels; None for graphs without labels.
        trees_per_example: number of trees in an example.
        example_ids: int64 ``[examples]``, index of each example in the data, for batches of a loader; otherwise None.
        feat: features of the nodes, ``[nodes, width]``, which a layer reads if its call gives no others; or None.

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
        feat: torch.Tensor | None = None,
    ) -> None:
        num_examples_of(schedule.num_trees, trees_per_example)
        self.schedule = schedule
        self.vocabulary = vocabulary
        self.trees_per_example = trees_per_example
        self.example_ids = example_ids
        self.feat = feat
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
        """Make a batch of trees.

        Args:
            trees: the trees. The trees of an example are next to each other.
            vocabulary: the labels, with their ids. Use the vocabulary of the layer.
            trees_per_example: number of trees in an example; 2 for pairs.
            share_subtrees: compute equal subtrees of the batch once. False if nodes have features, because equal
                subtrees may have different features.

        Raises:
            VocabularyError: the vocabulary does not have a label.
            GraphError: the number of trees is not a multiple of ``trees_per_example``.
        """
        forest = Forest.from_trees(trees)
        return cls.from_forest(forest, vocabulary, trees_per_example=trees_per_example, share_subtrees=share_subtrees)

    @classmethod
    def from_forest(
        cls, forest: Forest, vocabulary: Vocabulary, *, trees_per_example: int = 1, share_subtrees: bool = True
    ) -> TreeBatch:
        """Make a batch of all trees of a forest; arguments and errors as in :meth:`from_trees`."""
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
        """Make a batch of some examples of an indexed forest. This is fast for many batches of the same forest.

        Args:
            index: the subtrees of the forest.
            examples: positions of the examples in the forest, a slice or a boolean mask; all by default. The batch
                keeps this order.
            trees_per_example: number of trees in an example.
            share_subtrees: compute equal subtrees of the batch once.

        Raises:
            GraphError: the forest does not have such an example.
        """
        chosen = choose_examples(examples, num_examples_of(len(index.forest), trees_per_example))
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
        any_number_of_trees: bool = False,
    ) -> TreeBatch:
        """Make a batch of the trees of a DGL graph. Edges run from child to parent.

        A root is a node without a parent. The trees are in the order of the ids of their roots. Nodes keep their ids.
        Equal subtrees are not merged. The graph may be batched; each graph of a batch of several then holds one tree,
        or the ``trees_per_example`` trees of an example.

        Args:
            graph: a graph of trees, with these fields:

                * edge field ``position``: the place of a child among its siblings; by default the order of edge ids;
                * node field ``label``: index into ``labels``, and ``value``: the number of a number leaf;
                * or, in place of these, ``kind``: the kinds, and ``symbol``: the labels of leaves, and of functions
                  that share their kind, as indices into ``vocabulary.labels``.

                Without the node fields, all functions of one arity must share one kind. A layer that reads the labels
                of functions then needs the field ``label`` or ``symbol``.
            vocabulary: the labels, with their ids. Without a vocabulary, kinds are the field ``kind``; by default they
                are 0 for leaves and 1, 2, ... for the arities that occur, in ascending order.
            labels: the labels that the field ``label`` indexes; by default ``vocabulary.labels``.
            trees_per_example: number of trees in an example.
            allow_several_parents: a node may be the child of several nodes.
            any_number_of_trees: each graph of a batch may hold any number of trees; tree ``i`` need not be graph ``i``.

        Raises:
            GraphError: a cycle, a node with two parents, positions with a gap or a repetition, an arity that the
                vocabulary does not have, fields that do not fit, or a graph of a batch with another number of trees.
            VocabularyError: the vocabulary does not have a label, or not with this number of children; a number leaf
                without a finite value, or a value at another node.
        """
        schedule, local = schedule_of_dgl(graph, vocabulary, labels=labels, allow_several_parents=allow_several_parents)
        if not any_number_of_trees:
            check_trees_of_graphs(graphs_begin(graph), read_edges(graph).source, trees_per_example)
        return cls(schedule, vocabulary, trees_per_example=trees_per_example, graph=local)

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        vocabulary: Vocabulary | None = None,
        *,
        labels: Sequence[str] | None = None,
        trees_per_example: int = 1,
        allow_several_parents: bool = False,
        any_number_of_trees: bool = False,
    ) -> TreeBatch:
        """Make a batch of the trees of a PyG ``Data`` or ``Batch``; ``edge_index`` runs from child to parent.

        Arguments, fields and errors are those of :meth:`from_dgl`. Nodes keep their numbers. If a ``DataLoader`` of PyG
        batches the graphs, each ``Data`` needs ``num_nodes`` or ``x``.
        """
        schedule = schedule_of_pyg(data, vocabulary, labels=labels, allow_several_parents=allow_several_parents)
        if not any_number_of_trees:
            check_trees_of_graphs(pyg_graphs_begin(data), read_pyg_edges(data)[1].source, trees_per_example)
        return cls(schedule, vocabulary, trees_per_example=trees_per_example)

    @classmethod
    def from_edge_index(cls, edge_index: torch.Tensor, num_nodes: int) -> TreeBatch:
        """Make a batch of trees without labels from an ``edge_index``, int64 ``[2, edges]``, from child to parent.

        Children are in the order of their edges.

        Raises:
            GraphError: another shape or type, nodes that do not exist, a cycle, or a node with two parents.
        """
        check_edge_index(edge_index)
        source, target = edge_index.cpu().numpy().astype(np.int64)
        edges = GraphEdges(source, target, None)
        schedule = schedule_of_graph(num_nodes, edges, {}, None, labels=None, allow_several_parents=False)
        return cls(schedule.to(edge_index.device), None)

    def to_pyg(self) -> Data:
        """Return the batch as PyG graphs on the CPU, with the fields that :meth:`from_pyg` reads.

        A batch made from trees becomes a ``Batch`` with one graph for each tree: ``edge_index`` from child to parent;
        the edge field ``position``; the node fields ``label`` (index into ``vocabulary.labels``), ``kind`` and, if
        there are numbers, ``value``. A batch made from a graph becomes one ``Data`` with the nodes in the graph's
        order, and with ``symbol``, the indices into ``vocabulary.labels``, -1 for numbers, instead of ``label``.

        Raises:
            MissingPyGError: torch-geometric cannot be imported.
        """
        return pyg_of_trees(self._given_forest, self.schedule, self.vocabulary)

    @property
    def forest(self) -> Forest | None:
        """The trees of the batch; None for a graph without a vocabulary.

        Raises:
            GraphError: a graph that does not tell the labels of all nodes, or whose nodes have several parents.
        """
        if self._given_forest is not None or self.vocabulary is None:
            return self._given_forest
        return self._forest_of_graph[0]

    @property
    def node_of_forest(self) -> NDArray[np.int64]:
        """int64 ``[nodes]``, the number in the batch of each node of :attr:`forest`, which are in post-order."""
        if self._given_forest is not None or self.vocabulary is None:
            return np.arange(self.num_nodes)
        return self._forest_of_graph[1]

    @cached_property
    def _given_forest(self) -> Forest | None:
        forest, trees = self._source
        return None if forest is None else forest[trees]

    @cached_property
    def _forest_of_graph(self) -> tuple[Forest, NDArray[np.int64]]:
        assert self.vocabulary is not None
        return forest_of_schedule(self.schedule, self.vocabulary)

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
        """This batch with schedule and features on ``device``; forest and graph stay where they are."""
        feat = None if self.feat is None else to_device(self.feat, device)
        return self._changed(schedule=self.schedule.to(device), feat=feat)

    def pin_memory(self) -> TreeBatch:
        """This batch of the CPU with schedule and features in pinned memory, from which :meth:`to` copies to CUDA.

        :class:`torch.utils.data.DataLoader` calls it with ``pin_memory=True``, in a thread of its own. Without it,
        :meth:`to` makes a pinned copy itself.

        Raises:
            RuntimeError: torch finds no accelerator.
        """
        feat = None if self.feat is None else pinned_together([self.feat])[0]
        return self._changed(schedule=self.schedule.pin_memory(), feat=feat)

    def with_feat(self, feat: torch.Tensor | None) -> TreeBatch:
        """This batch with other features of the nodes; None leaves them as they are."""
        return self if feat is None else self._changed(feat=feat)

    def _changed(self, **changes: Any) -> TreeBatch:
        batch = TreeBatch.__new__(TreeBatch)
        batch.__dict__.update({**self.__dict__, **changes})
        return batch

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
        return graph_of_trees(self._given_forest, self.schedule, self.vocabulary)

    def tokens(self, form: TokenForm) -> tuple[torch.Tensor, torch.Tensor]:
        """What a sequence model reads of each tree.

        Args:
            form: see :func:`treemem.trees.tokens.forest_tokens`.

        Returns:
            On the batch's device int64 ``[trees, longest]``, indices into ``token_table(vocabulary, form)``, 0 after
            the end of shorter sequences; and on the CPU the lengths, int64 ``[trees]``.

        Raises:
            GraphError: the batch was made from a graph without a vocabulary, or as :attr:`forest`.
        """
        if self.forest is None:
            raise GraphError("a batch made from a graph without a vocabulary has no tokens; give from_dgl a vocabulary")
        token, length = forest_tokens(self.forest, form, self.vocabulary).padded()
        return to_device(torch.from_numpy(token), self.device), torch.from_numpy(length)

    def __getstate__(self) -> dict[str, Any]:
        # The slice goes along, not the forest that it was cut from; a graph made from it can be made again.
        made = ("graph", "_given_forest", "_forest_of_graph")
        state = {name: item for name, item in self.__dict__.items() if name not in made}
        return {**state, "_source": (self._given_forest, slice(None))}

    def __repr__(self) -> str:
        return (
            f"<TreeBatch of {self.num_examples} examples, {self.num_trees} trees, {self.num_nodes} nodes in "
            f"{self.schedule.num_rows} rows>"
        )


def num_examples_of(num_trees: int, trees_per_example: int) -> int:
    """The number of examples that trees make.

    Raises:
        GraphError: some trees are left over.
    """
    if trees_per_example < 1 or num_trees % trees_per_example:
        raise GraphError(f"{num_trees} trees cannot be split into examples of {trees_per_example} trees each")
    return num_trees // trees_per_example


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
