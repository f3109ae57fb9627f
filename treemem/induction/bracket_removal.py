"""Removal of brackets from the words of trees."""

from __future__ import annotations

from collections.abc import Collection

from treemem.errors import GraphError
from treemem.trees.tree import Tree


def remove_brackets(tree: Tree, brackets: Collection[str] = ("(", ")")) -> Tree:
    """Return ``tree`` without the leaves that are brackets.

    A model that reads brackets as tokens puts them into its trees; gold trees have none. A node without children left
    is removed too, and every node of one child is replaced by the child. A binary tree stays binary. Other nodes keep
    their labels.

    Args:
        tree: any tree.
        brackets: the labels of the leaves to remove; if empty, only nodes of one child are replaced.

    Raises:
        GraphError: every leaf is a bracket.

    Example:
        >>> from treemem.trees.formats.brackets import parse_brackets
        >>> str(remove_brackets(parse_brackets('(X (X "(" (X not a)) ")")')))
        '(X not a)'
    """
    if isinstance(brackets, str):
        raise GraphError(f'brackets must be several labels, such as ("(", ")"), not the one string {brackets!r}')
    dropped = frozenset(brackets)
    kept: list[Tree | None] = []
    for node in tree.postorder():
        if node.is_leaf:
            kept.append(None if node.label in dropped else node)
            continue
        first = len(kept) - node.arity
        children = [child for child in kept[first:] if child is not None]
        del kept[first:]
        kept.append(Tree(node.label, children) if len(children) > 1 else next(iter(children), None))
    if kept[0] is None:
        raise GraphError(f"every leaf is one of {', '.join(map(repr, sorted(dropped)))}; nothing is left of {tree!r}")
    return kept[0]
