"""Nodes in post-order as parsers write them, and the forest that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from treemem.trees.forest import Forest
from treemem.trees.postorder import offsets
from treemem.trees.tree import Tree

Node = tuple[str, int, "float | None"]
"""A label, a number of children, and the number that a leaf stands for."""


def tree_nodes(tree: Tree) -> list[Node]:
    """The nodes of a tree."""
    nodes, pending = [], [tree]
    while pending:
        node = pending.pop()
        nodes.append((node.label, len(node.children), node.value))
        pending.extend(node.children)
    nodes.reverse()
    return nodes


def forest_of_nodes(trees: Iterable[Sequence[Node]]) -> Forest:
    """A forest of trees that are given by their nodes, the same as :meth:`Forest.from_trees` makes of the trees.

    Args:
        trees: the nodes of each tree, children before their parent; nothing checks that they make one.

    Example:
        >>> forest = forest_of_nodes([[("x", 0, None), ("2", 0, None), ("Add", 2, None)], [("x", 0, None)]])
        >>> [str(tree) for tree in forest]
        ['(Add x 2)', 'x']
    """
    number = _Numbers()
    size: list[int] = []

    def all_nodes() -> Iterator[Node]:
        for nodes in trees:
            size.append(len(nodes))
            yield from nodes

    place: NDArray[np.int64] = np.fromiter(map(number.__getitem__, all_nodes()), np.int64)
    labels = {label: index for index, label in enumerate(dict.fromkeys(label for label, _, _ in number))}
    label = np.array([labels[label] for label, _, _ in number], np.int32)
    arity = np.array([arity for _, arity, _ in number], np.int32)
    value = None
    if any(value is not None for _, _, value in number):
        value = np.array([value for _, _, value in number], np.float64)[place]
    return Forest(tuple(labels), label[place], arity[place], offsets(size), value)


class _Numbers(dict[Node, int]):
    """Numbers each distinct node when it is first asked for."""

    def __missing__(self, node: Node) -> int:
        self[node] = number = len(self)
        return number
