"""Many trees in flat arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError, shown
from treemem.trees.forest_arrays import (
    ForestArrays,
    arrays_of_nodes,
    check_nodes,
    checked_data,
    checked_integers,
    checked_values,
    joined_data,
    same_array,
    same_data,
)
from treemem.trees.forest_files import load_arrays, read_parquet, save_arrays, write_parquet
from treemem.trees.formats.as_tree import trees_of
from treemem.trees.formats.forms import TextForm
from treemem.trees.formats.text_forms import TextReader
from treemem.trees.postorder import PostorderTrees, concatenated_ranges, offsets, read_only
from treemem.trees.token_layout import TokenForm, TokenSequences, punctuation, write_tokens
from treemem.trees.tree import Node, Tree, tree_from_postorder, tree_nodes

VECTOR = "vector"
"""The name in ``node_data`` of the row that a node has in ``Forest.vectors``."""
SEQUENCE = "Sequence"
"""The label of the root of a flat tree, whose leaves are the tokens of a sequence."""


class Forest(PostorderTrees):
    """Many ordered labelled trees in flat arrays; immutable.

    The nodes of all trees stand in post-order, tree after tree: children from left to right, then their parent.

    Use :meth:`from_trees`, or :meth:`from_arrays`, which checks its arguments. The constructor does not.

    Attributes:
        labels: the distinct labels.
        label: int32 ``[nodes]``, index into ``labels``.
        arity: int32 ``[nodes]``, number of children.
        begin: int64 ``[trees + 1]``; tree ``i`` is the nodes ``begin[i]`` to ``begin[i + 1] - 1``, its root the last.
        value: float64 ``[nodes]``, the numbers that leaves stand for, NaN where there is none; or None.
        node_data: name to an array ``[nodes, ...]``, such as a class at every node.
        tree_data: name to an array ``[trees, ...]``, such as a depth for each tree.
        vectors: ``[vectors, width]``, such as those of words in their sentences, or None. ``node_data["vector"]`` has
            the row of each node, -1 for none. All parts of a forest share them; they may be mapped from a file. They
            are not saved with a forest.

    Example:
        >>> forest = Forest.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")])
        >>> len(forest), forest.num_nodes, forest.height().tolist()
        (2, 4, [0, 0, 1, 0])
        >>> str(forest[0])
        '(Add x 1)'
    """

    def __init__(
        self,
        labels: tuple[str, ...],
        label: NDArray[np.int32],
        arity: NDArray[np.int32],
        begin: NDArray[np.int64],
        value: NDArray[np.float64] | None = None,
        node_data: Mapping[str, NDArray[Any]] | None = None,
        tree_data: Mapping[str, NDArray[Any]] | None = None,
        vectors: NDArray[Any] | None = None,
    ) -> None:
        super().__init__(arity, begin)
        self.labels = labels
        self.label = read_only(label)
        self.value = None if value is None else read_only(value)
        self.node_data = {name: read_only(array) for name, array in (node_data or {}).items()}
        self.tree_data = {name: read_only(array) for name, array in (tree_data or {}).items()}
        self.vectors = vectors

    @classmethod
    def from_trees(
        cls,
        trees: Iterable[Any],
        *,
        text: TextForm = "brackets",
        labels: Sequence[str] | None = None,
        node_data: Mapping[str, ArrayLike] | None = None,
        tree_data: Mapping[str, ArrayLike] | None = None,
    ) -> Forest:
        """Lay trees out flat.

        Args:
            trees: the trees, in order: each a :class:`Tree`; a text in brackets such as ``"(f x y)"``; nested lists,
                dictionaries or another form of :func:`~treemem.trees.as_tree`; or a ``DGLGraph`` of one or more trees
                (:func:`~treemem.trees.forest_from_dgl`).
            text: the form of the texts, such as ``"brackets"`` for ``(f x y)``, ``"json"`` or ``"newick"``; the page
                "Your own trees" lists all.
            labels: for graphs, the labels that their node field ``label`` indexes.
            node_data: name to one entry per node, all trees' nodes in post-order.
            tree_data: name to one entry per tree.

        Raises:
            GraphError: a single tree, an item that is not a tree, or data of the wrong length or type.
            ParseError: a text that is not a tree; its ``line`` is its position, from 1.
            RecipeError: texts in brackets that look unlabelled.
        """
        if not isinstance(trees, Iterable) or isinstance(trees, (str, Mapping)):
            raise GraphError(f"a list of trees is needed, not {shown(trees)}; put a single tree in a list")
        reader = TextReader(text)
        forest = cls.from_nodes(map(tree_nodes, trees_of(trees, labels, reader.parse)))
        forest = forest.with_data(node_data=node_data, tree_data=tree_data)
        reader.check_brackets(forest)
        return forest

    @classmethod
    def from_nodes(cls, trees: Iterable[Sequence[Node]]) -> Forest:
        """Return the forest of trees that are given by their nodes, children before their parent, unchecked."""
        return cls(**arrays_of_nodes(trees)._asdict())

    @classmethod
    def from_arrays(
        cls,
        labels: Sequence[str],
        label: ArrayLike,
        arity: ArrayLike,
        begin: ArrayLike,
        value: ArrayLike | None = None,
        *,
        node_data: Mapping[str, ArrayLike] | None = None,
        tree_data: Mapping[str, ArrayLike] | None = None,
    ) -> Forest:
        """Take over arrays, laid out as the attributes say, after checking that they describe whole trees.

        Raises:
            GraphError: lengths that differ, a label outside the table, arities that do not make the trees that
                ``begin`` says, a value at an inner node or one that is infinite.
        """
        if any(not isinstance(name, str) for name in labels) or len(set(labels)) < len(labels):
            raise GraphError("labels must be distinct strings")
        label, arity = checked_integers("label", label, np.int32), checked_integers("arity", arity, np.int32)
        begin = checked_integers("begin", begin, np.int64)
        if not len(begin) or begin[0] != 0 or begin[-1] != len(label) or len(arity) != len(label):
            raise GraphError(
                f"begin must run from 0 to the number of nodes: {len(label)} labels, {len(arity)} arities, "
                f"begin {begin[:1].tolist()} to {begin[-1:].tolist()}"
            )
        if value is not None:
            value = checked_values(value)
            if len(value) != len(label):
                raise GraphError(f"{len(value)} values for {len(label)} nodes; value needs one a node, NaN for none")
            if np.isnan(value).all():
                value = None
        if (is_empty := np.diff(begin) < 1).any():
            raise GraphError(f"tree {int(np.argmax(is_empty)) + 1} has no node; begin must grow at every tree")
        check_nodes(labels, label, arity, begin, value)
        if value is not None and (np.signbit(value) & (value == 0)).any():
            value = value + 0.0  # -0.0 and 0.0 are one number
        return cls(
            tuple(labels),
            label,
            arity,
            begin,
            value,
            checked_data("node_data", node_data, len(label)),
            checked_data("tree_data", tree_data, len(begin) - 1),
        )

    @classmethod
    def concatenate(cls, forests: Iterable[Forest]) -> Forest:
        """The trees of all forests, one forest after the other, under one table of labels.

        Raises:
            GraphError: forests that carry data of different names or shapes.
        """
        parts = list(forests)
        table: dict[str, int] = {}
        label = [
            np.array([table.setdefault(name, len(table)) for name in part.labels], np.int32)[part.label]
            if part.num_nodes
            else part.label
            for part in parts
        ]
        offset = np.cumsum([0, *(part.num_nodes for part in parts)])
        begin = [part.begin[:-1] + start for part, start in zip(parts, offset, strict=False)]
        value = None
        if any(part.value is not None for part in parts):
            value = np.concatenate([np.full(p.num_nodes, np.nan) if p.value is None else p.value for p in parts])
        return cls(
            tuple(table),
            np.concatenate([np.empty(0, np.int32), *label]),
            np.concatenate([np.empty(0, np.int32), *(part.arity for part in parts)]),
            np.concatenate([*begin, offset[-1:]]).astype(np.int64),
            value,
            joined_data([part.node_data for part in parts], "node_data"),
            joined_data([part.tree_data for part in parts], "tree_data"),
            _shared_vectors(parts),
        )

    def with_data(
        self, *, node_data: Mapping[str, ArrayLike] | None = None, tree_data: Mapping[str, ArrayLike] | None = None
    ) -> Forest:
        """The same trees with other data in place of their own; the arrays of the trees are not copied.

        Without ``node_data["vector"]`` they have no vectors.

        Raises:
            GraphError: data that do not have one entry a node, or one a tree.
        """
        return Forest(
            self.labels,
            self.label,
            self.arity,
            self.begin,
            self.value,
            checked_data("node_data", node_data, self.num_nodes),
            checked_data("tree_data", tree_data, len(self)),
            self.vectors if VECTOR in (node_data or {}) else None,
        )

    def with_vectors(self, vectors: NDArray[Any], row: NDArray[np.int64]) -> Forest:
        """The same trees, each node with a row of ``vectors`` ``[vectors, width]``, or with none (-1)."""
        forest = self.with_data(node_data={**self.node_data, VECTOR: row}, tree_data=self.tree_data)
        forest.vectors = vectors
        return forest

    def vectors_of(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of nodes, ``[nodes, width]``; 0 for a node without one.

        Raises:
            GraphError: the forest has no vectors.
        """
        if self.vectors is None:
            raise GraphError("this forest has no vectors; give it some with with_vectors(vectors, row)")
        row = self.node_data[VECTOR][nodes]
        vectors = np.zeros((len(nodes), self.vectors.shape[1]), np.float32)
        vectors[row >= 0] = self.vectors[row[row >= 0]]
        return vectors

    def __iter__(self) -> Iterator[Tree]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Tree: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[bool] | NDArray[Any]) -> Forest: ...

    def __getitem__(self, index: Any) -> Tree | Forest:
        """One tree for an integer; a forest for a slice, an array of integers or a boolean mask.

        Raises:
            IndexError: an integer beyond the trees.
            GraphError: an array with such an integer, a mask of another length, or something else.
        """
        if isinstance(index, (int, np.integer)):
            if not -len(self) <= index < len(self):
                raise IndexError(f"tree {index} of a forest of {len(self)}")
            tree = int(index) % len(self)
            return self._tree(slice(int(self.begin[tree]), int(self.begin[tree + 1])))
        if isinstance(index, slice) and index.indices(len(self))[2] == 1:
            first, last, _ = index.indices(len(self))
            last = max(first, last)
            nodes: Any = slice(int(self.begin[first]), int(self.begin[last]))
            return self._part(slice(first, last), nodes, self.begin[first : last + 1] - self.begin[first])
        if isinstance(index, Sequence) and not len(index):
            index = np.empty(0, np.int64)
        try:
            trees = np.arange(len(self))[index]
        except (IndexError, ValueError, TypeError) as error:
            raise GraphError(f"{shown(index)} chooses no trees of a forest of {len(self)}: {error}") from error
        if trees.ndim != 1:
            raise GraphError(f"{shown(index)} chooses no trees of a forest of {len(self)}: it is no list of integers")
        if len(trees) and (np.diff(trees) == 1).all():  # a view, which leaves a forest larger than memory in its file
            return self[int(trees[0]) : int(trees[-1]) + 1]
        count = self.begin[trees + 1] - self.begin[trees]
        return self._part(trees, concatenated_ranges(self.begin[trees], count), offsets(count))

    def _tree(self, nodes: slice) -> Tree:
        labels = [self.labels[index] for index in self.label[nodes].tolist()]
        values = None
        if self.value is not None:
            values = [None if number != number else number for number in self.value[nodes].tolist()]
        return tree_from_postorder(labels, self.arity[nodes].tolist(), values)

    def _part(self, trees: Any, nodes: Any, begin: NDArray[np.int64]) -> Forest:
        return Forest(
            self.labels,
            self.label[nodes],
            self.arity[nodes],
            begin,
            None if self.value is None else self.value[nodes],
            {name: array[nodes] for name, array in self.node_data.items()},
            {name: array[trees] for name, array in self.tree_data.items()},
            self.vectors,
        )

    def __eq__(self, other: object) -> bool:
        """Whether both hold equal trees in the same order, and equal data; the order of ``labels`` does not matter."""
        if not isinstance(other, Forest):
            return NotImplemented
        known = {name: index for index, name in enumerate(other.labels)}
        translation = np.array([known.get(name, -1) for name in self.labels], np.int32)
        return (
            np.array_equal(self.begin, other.begin)
            and np.array_equal(self.arity, other.arity)
            and (not self.num_nodes or np.array_equal(translation[self.label], other.label))
            and same_array(self.value, other.value)
            and same_data(self.node_data, other.node_data)
            and same_data(self.tree_data, other.tree_data)
            and (self.vectors is other.vectors or same_array(self.vectors, other.vectors))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Forest of {len(self)} trees, {self.num_nodes} nodes, {len(self.labels)} labels>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Forest, (*self.arrays(), self.vectors)

    def arrays(self) -> ForestArrays:
        """The arrays that make the forest; :meth:`from_arrays` takes them."""
        return ForestArrays(self.labels, self.label, self.arity, self.begin, self.value, self.node_data, self.tree_data)

    def split_roots(self) -> Forest:
        """The subtrees under each root, adjacent: an equation becomes its left and its right side.

        ``node_data`` stays with its nodes; ``tree_data`` is repeated for each part.

        Raises:
            GraphError: roots that differ in their number of children, or that have none.
        """
        root = self.begin[1:] - 1
        arities = np.unique(self.arity[root])
        if len(arities) > 1 or (len(arities) and arities[0] == 0):
            first = int(np.argmax((self.arity[root] != self.arity[root][0]) | (self.arity[root] == 0)))
            raise GraphError(
                f"tree {first + 1} has {int(self.arity[root[first]])} subtrees under its root and tree 1 has "
                f"{int(self.arity[root[0]])}; all roots must have the same number of children, at least one"
            )
        num_parts = int(arities[0]) if len(arities) else 1
        keep = np.ones(self.num_nodes, bool)
        keep[root] = False
        pointer, child = self.children()
        part_root = child[concatenated_ranges(pointer[root], self.arity[root])]
        return self._part(np.repeat(np.arange(len(self)), num_parts), keep, offsets(self.subtree_size()[part_root]))

    @classmethod
    def from_sequences(cls, sequences: Iterable[Sequence[str]]) -> Forest:
        """The forest of flat trees that hold sequences of tokens, such as the words of a text.

        Each tree has a root with the label ``SEQUENCE`` whose children are the tokens; an empty sequence is a lone
        root. In the form ``"leaves"``, :meth:`tokens` gives the sequences back.

        Example:
            >>> forest = Forest.from_sequences([["the", "cat", "sat"], []])
            >>> forest.tokens("leaves").strings()
            [['the', 'cat', 'sat'], []]
        """
        sequences = list(sequences)
        length = np.array([len(sequence) for sequence in sequences], np.int64)
        begin = offsets(length + 1)
        table = {SEQUENCE: 0}
        words = itertools.chain.from_iterable(sequences)
        token = np.fromiter((table.setdefault(word, len(table)) for word in words), np.int32, int(length.sum()))
        label, arity = np.zeros(int(begin[-1]), np.int32), np.zeros(int(begin[-1]), np.int32)
        is_leaf = np.ones(len(label), bool)
        is_leaf[begin[1:] - 1] = False
        label[is_leaf] = token
        arity[~is_leaf] = length
        return cls(tuple(table), label, arity, begin)

    @cached_property
    def is_flat(self) -> bool:
        """Whether every tree is a sequence, as :meth:`from_sequences` makes them."""
        root = self.begin[1:] - 1
        has_only_leaves = bool((self.arity[root] == np.diff(self.begin) - 1).all())
        is_sequence = np.array([label == SEQUENCE for label in self.labels], bool)
        return has_only_leaves and bool(len(self)) and bool(is_sequence[self.label[root]].all())

    def flat_nodes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(node [tokens], begin [trees + 1])``: the nodes that are tokens of sequences, and where each one starts.

        Raises:
            GraphError: a tree is no sequence.
        """
        if len(self) and not self.is_flat:
            raise GraphError("a tree of this forest is no sequence; Forest.from_sequences makes sequences")
        is_token = np.ones(self.num_nodes, bool)
        is_token[self.begin[1:] - 1] = False
        return np.flatnonzero(is_token), self.begin - np.arange(len(self.begin))

    def tokens(self, form: TokenForm) -> TokenSequences:
        """The tokens of each tree in one of the forms of :func:`treemem.trees.tokens.forest_tokens`.

        The ids of tokens count the forest's own labels, then the punctuation.
        """
        if form == "leaves" and self.is_flat:
            node, begin = self.flat_nodes()
            return TokenSequences(self.labels, self.label[node].astype(np.int64), begin, node)
        table = (*self.labels, *punctuation(form))
        return write_tokens(self, form, table, self.label.astype(np.int64))

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file with one row a tree; see :mod:`treemem.trees.forest_files`."""
        write_parquet(self.arrays(), path)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Forest:
        """Read what :meth:`to_parquet` wrote.

        Raises:
            GraphError: the file cannot be read, or holds no forest.
        """
        return cls.from_arrays(**read_parquet(path)._asdict())

    def save(self, folder: str | Path) -> None:
        """Write a folder of ``.npy`` files that :meth:`load` can map into memory."""
        save_arrays(self.arrays(), folder)

    @classmethod
    def load(cls, folder: str | Path, *, mmap: bool = True) -> Forest:
        """Read what :meth:`save` wrote, by default without copying the arrays into memory.

        Raises:
            GraphError: the folder holds no whole forest.
        """
        arrays = load_arrays(folder, mmap=mmap)
        try:
            return cls.from_arrays(**arrays._asdict())
        except GraphError as error:
            raise GraphError(f"{folder} holds no whole forest: {error}") from error


def _shared_vectors(parts: Sequence[Forest]) -> NDArray[Any] | None:
    """Return the vectors of all forests.

    Raises:
        GraphError: they have different ones.
    """
    first = parts[0].vectors if parts else None
    if any(part.vectors is not first for part in parts):
        raise GraphError("the forests have different vectors, and their nodes count the rows of their own")
    return first
