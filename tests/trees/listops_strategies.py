"""ListOps expressions for tests: n-ary trees, and their two spellings written by plain recursion."""

from __future__ import annotations

from hypothesis import strategies as st

from treemem.trees.formats.listops import DIGITS, OPERATORS, RARE_OPERATORS
from treemem.trees.tree import Tree


def nary_expressions(max_leaves: int = 12) -> st.SearchStrategy[Tree]:
    """Expressions whose lists have one to four arguments."""
    return st.recursive(
        st.sampled_from(DIGITS).map(Tree),
        lambda parts: st.builds(
            Tree, st.sampled_from((*OPERATORS, *RARE_OPERATORS)), st.lists(parts, min_size=1, max_size=4)
        ),
        max_leaves=max_leaves,
    )


def plain_text(tree: Tree) -> str:
    """``[MAX 2 9 ]``."""
    return " ".join([tree.label, *map(plain_text, tree.children), "]"]) if tree.children else tree.label


def bracketed_text(tree: Tree) -> str:
    """``( ( ( [MAX 2 ) 9 ) ] )``."""
    if not tree.children:
        return tree.label
    text = tree.label
    for part in [*map(bracketed_text, tree.children), "]"]:
        text = f"( {text} {part} )"
    return text
