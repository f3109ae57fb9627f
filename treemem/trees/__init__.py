"""What a tree is, and the ways in and out of it: text, sympy, networkx, DGL, PyG."""

from __future__ import annotations

from treemem.trees.bridges.dgl import forest_from_dgl, forest_to_dgl, tree_from_dgl, tree_to_dgl
from treemem.trees.bridges.networkx import tree_from_networkx, tree_to_networkx
from treemem.trees.bridges.pyg import forest_from_pyg, forest_to_pyg, tree_from_pyg, tree_to_pyg
from treemem.trees.bridges.sympy import tree_from_sympy, tree_to_sympy
from treemem.trees.forest import Forest
from treemem.trees.formats.as_tree import as_tree
from treemem.trees.formats.brackets import format_brackets, parse_brackets
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.parser import parse_equation, parse_equation_sides, parse_expression
from treemem.trees.formats.listops import format_listops, parse_listops
from treemem.trees.formats.logic import format_logic, parse_logic
from treemem.trees.formats.penn import read_penn_trees
from treemem.trees.formats.preorder import format_preorder, parse_preorder
from treemem.trees.formats.sentiment import read_sentiment_trees
from treemem.trees.formats.text_forms import format_text, parse_text
from treemem.trees.formats.tree_files import read_trees
from treemem.trees.pcfg import Grammar
from treemem.trees.tokens import TokenSequences, forest_tokens, token_table
from treemem.trees.tree import Tree, tree_from_postorder
from treemem.trees.vocabulary import Kind, Vocabulary

__all__ = [
    "Forest",
    "Grammar",
    "Kind",
    "TokenSequences",
    "Tree",
    "Vocabulary",
    "as_tree",
    "forest_from_dgl",
    "forest_from_pyg",
    "forest_to_dgl",
    "forest_to_pyg",
    "forest_tokens",
    "format_brackets",
    "format_equation",
    "format_listops",
    "format_logic",
    "format_preorder",
    "format_text",
    "parse_brackets",
    "parse_equation",
    "parse_equation_sides",
    "parse_expression",
    "parse_listops",
    "parse_logic",
    "parse_preorder",
    "parse_text",
    "read_penn_trees",
    "read_sentiment_trees",
    "read_trees",
    "token_table",
    "tree_from_dgl",
    "tree_from_networkx",
    "tree_from_postorder",
    "tree_from_pyg",
    "tree_from_sympy",
    "tree_to_dgl",
    "tree_to_networkx",
    "tree_to_pyg",
    "tree_to_sympy",
]
