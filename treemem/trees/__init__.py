"""What a tree is, and the ways in and out of it: text, sympy, networkx, DGL."""

from __future__ import annotations

from treemem.trees.brackets import format_brackets, parse_brackets
from treemem.trees.tree import Tree, tree_from_postorder

__all__ = [
    "Tree",
    "format_brackets",
    "parse_brackets",
    "tree_from_postorder",
]
