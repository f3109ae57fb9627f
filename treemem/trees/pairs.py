"""Pairs of trees: joined by a root, or one after the other in a forest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import RecordReader
from treemem.trees.tree import Tree

PAIR = "pair"
"""The label of the root that joins two trees."""


class PairReader(RecordReader):
    """A reader whose trees join two. Reads such a tree, or the two trees of a pair.

    Attributes:
        unit: what the two are, in the plural.
    """

    unit: ClassVar[str]

    def checked_tree(self, tree: Tree) -> Tree:
        if tree.label != PAIR or tree.arity != 2:
            raise GraphError(f"the root is {tree.label!r} with {tree.arity} children; it must be {PAIR!r} with 2")
        return tree

    def joined(self, trees: Sequence[Tree]) -> Tree:
        if len(trees) != 2:
            raise GraphError(f"a pair is two {self.unit}, not {len(trees)}")
        return Tree(PAIR, trees)


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
