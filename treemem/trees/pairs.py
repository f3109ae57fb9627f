"""Pairs of trees: joined by a root, or one after the other in a forest."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import RecordReader, text_of
from treemem.trees.tree import Node, Tree, tree_nodes

PAIR = "pair"
"""The label of the root that joins two trees."""


class PairReader(RecordReader):
    """A reader whose trees join two. Reads such a tree, or the two trees of a pair.

    Attributes:
        unit: what the two are, in the plural.
        sides: names of the fields of the two; the first two that a record has count.
        text_sides: those of ``sides`` that are parts of a text line.
    """

    unit: ClassVar[str]
    sides: ClassVar[tuple[tuple[str, str], ...]]
    text_sides: ClassVar[tuple[str, str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.example_fields = tuple(itertools.chain.from_iterable(cls.sides))
        cls.text_sides = next(names for names in cls.sides if {*names} <= {*cls.text_fields})

    @classmethod
    def side_names(cls, fields: Mapping[str, Any]) -> tuple[str, str]:
        """Return the names of the fields of the two in a record; those of text lines if it has none."""
        return next((names for names in cls.sides if fields.get(names[0]) is not None), cls.text_sides)

    def texts(self, fields: Mapping[str, Any]) -> list[str]:
        """Return the texts of the two.

        Raises:
            ParseError: one of them is missing, or is no text for a tree.
        """
        return [text_of(fields, [name]) for name in self.side_names(fields)]

    @abstractmethod
    def trees(self, texts: Sequence[str]) -> list[Tree]:
        """Return the trees of texts of :meth:`texts`. Raises ``ParseError``."""

    def forest(self, texts: Sequence[str], source: str = "", lines: Sequence[int] | None = None) -> Forest:
        """Return the trees of texts of :meth:`texts`, one after the other.

        Args:
            texts: of the trees.
            source, lines: where the texts are, for errors.

        Raises:
            ParseError: a text is no tree.
        """
        return Forest.from_trees(self.trees(texts))

    def pair(self, fields: Mapping[str, Any]) -> Tree:
        """Return the tree that joins the two of a record. Raises ``ParseError``."""
        return self.joined(self.trees(self.texts(fields)))

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(self.pair(fields))

    def checked_tree(self, tree: Tree) -> Tree:
        if tree.label != PAIR or tree.arity != 2:
            raise GraphError(f"the root is {tree.label!r} with {tree.arity} children; it must be {PAIR!r} with 2")
        return tree

    def joined(self, trees: Sequence[Tree]) -> Tree:
        if len(trees) != 2:
            raise GraphError(f"a pair is two {self.unit}, not {len(trees)}")
        return Tree(PAIR, trees)


def with_pair_data(forest: Forest, pair_data: Mapping[str, NDArray[Any]]) -> Forest:
    """Return the two trees of each pair, one after the other, with ``tree_data`` of what is known of each pair."""
    return forest.with_data(tree_data={name: np.repeat(array, 2) for name, array in pair_data.items()})


def separate_pairs(data: Forest, unit: str) -> tuple[Forest, Mapping[str, NDArray[Any]]]:
    """Return the two trees of each pair, one after the other, and the ``tree_data`` of the pairs.

    Args:
        data: trees that join two, or the two trees of each pair one after the other.
        unit: what the two are, in the plural.

    Raises:
        GraphError: a tree without a second one.
    """
    if len(data) and PAIR in data.labels and (data.label[data.begin[1:] - 1] == data.labels.index(PAIR)).all():
        return data.split_roots(), data.tree_data
    if len(data) % 2:
        raise GraphError(f"{len(data)} {unit} make no pairs; the two of a pair must be adjacent")
    return data, {name: array[::2] for name, array in data.tree_data.items()}
