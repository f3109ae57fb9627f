"""A tree as lines of text, a node a line, each child further in than its parent."""

from __future__ import annotations

from treemem.trees.tree import Tree

_STEP = "  "


def format_outline(tree: Tree, max_depth: int | None = None) -> str:
    """Draw a tree.

    Args:
        tree: the tree.
        max_depth: nodes further from the root are left out; the line of the node above says how many. None: all are
            drawn, which for a chain of n nodes takes n * n characters.

    Example:
        >>> print(format_outline(Tree("f", [Tree("g", [Tree("x")]), Tree("y")])))
        f
          g
            x
          y
    """
    lines = []
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        text = node.label if node.value is None else f"{node.label} {node.value!r}"
        if max_depth is not None and depth == max_depth and node.children:
            lines.append(f"{_STEP * depth}{text} ... {node.size - 1} nodes below")
            continue
        lines.append(_STEP * depth + text)
        pending.extend((child, depth + 1) for child in reversed(node.children))
    return "\n".join(lines)
