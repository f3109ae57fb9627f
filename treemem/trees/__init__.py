"""What a tree is, and the ways in and out of it: text, sympy, networkx, DGL."""

from __future__ import annotations

from treemem.trees.brackets import format_brackets, parse_brackets
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_parser import parse_equation, parse_equation_sides, parse_expression
from treemem.trees.preorder import format_preorder, parse_preorder
from treemem.trees.sympy_bridge import tree_from_sympy, tree_to_sympy
from treemem.trees.tree import Tree, tree_from_postorder

__all__ = [
    "Tree",
    "format_brackets",
    "format_equation",
    "format_preorder",
    "parse_brackets",
    "parse_equation",
    "parse_equation_sides",
    "parse_expression",
    "parse_preorder",
    "tree_from_postorder",
    "tree_from_sympy",
    "tree_to_sympy",
]
