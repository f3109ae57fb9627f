from __future__ import annotations

from treemem.trees.formats.outline import format_outline
from treemem.trees.tree import Tree


def test_each_node_has_a_line_and_children_stand_further_in() -> None:
    tree = Tree("f", [Tree("g", [Tree("x"), Tree("Number", value=2.5)]), Tree("y")])
    assert format_outline(tree) == "f\n  g\n    x\n    Number 2.5\n  y"


def test_nodes_below_the_greatest_depth_are_counted() -> None:
    tree = Tree("x")
    for _ in range(5000):
        tree = Tree("f", [tree, Tree("y")])
    lines = format_outline(tree, max_depth=2).splitlines()
    assert lines == ["f", "  f", f"    f ... {2 * 4998} nodes below", "    y", "  y"]
