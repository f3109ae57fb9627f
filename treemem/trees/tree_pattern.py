"""Patterns of subtrees, to find the trees that hold one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree

ANY_SUBTREE = "_"


class TreePattern:
    """A subtree with gaps.

    A node of a tree matches a node of the pattern if it has the same label and as many children, and each child
    matches. The leaf ``_`` matches every subtree. A label such as ``and|or`` matches each of the two.

    Args:
        tree: the pattern.

    Example:
        >>> pattern = TreePattern.parse("( and|or ( not _ ) )", first="child")
        >>> forest = Forest.from_trees(parse_brackets(text, first="child") for text in ("( a ( or ( not b ) ) )", "a"))
        >>> pattern.occurs(forest).tolist()
        [True, False]
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @classmethod
    def parse(cls, text: str, *, first: Literal["label", "child"] = "label") -> TreePattern:
        """Read a pattern from brackets; see :func:`treemem.trees.parse_brackets`.

        Raises:
            ParseError: the text is not one bracketed tree.
        """
        return cls(parse_brackets(text, first=first))

    def matches(self, forest: Forest) -> NDArray[np.bool_]:
        """Which nodes match, bool ``[nodes]``."""
        matched: list[NDArray[np.bool_]] = []
        pending: list[tuple[Tree, bool]] = [(self.tree, False)]
        while pending:
            node, is_left = pending.pop()
            if not is_left:
                pending.append((node, True))
                pending.extend((child, False) for child in reversed(node.children))
                continue
            number = len(node.children)
            parts = matched[len(matched) - number :]
            del matched[len(matched) - number :]
            matched.append(_matches(forest, node, parts))
        return matched[0]

    def occurs(self, forest: Forest) -> NDArray[np.bool_]:
        """Which trees have a node that matches, bool ``[trees]``."""
        if not len(forest):
            return np.zeros(0, bool)
        return np.logical_or.reduceat(self.matches(forest), forest.begin[:-1])

    def __repr__(self) -> str:
        return f"<TreePattern {self.tree}>"


def _matches(forest: Forest, node: Tree, parts: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which nodes match one of the pattern, given which ones match its children."""
    if node.label == ANY_SUBTREE and not parts:
        return np.ones(forest.num_nodes, bool)
    names = [name for name in node.label.split("|") if name] or [node.label]
    if node.label in forest.labels:
        names.append(node.label)
    wanted = np.array([label in names for label in forest.labels], bool)
    right = (forest.arity == len(parts)) & (wanted[forest.label] if forest.num_nodes else False)
    candidates = np.flatnonzero(right)
    pointer, child = forest.children()
    for place, part in enumerate(parts):
        candidates = candidates[part[child[pointer[candidates] + place]]]
    result = np.zeros(forest.num_nodes, bool)
    result[candidates] = True
    return result
