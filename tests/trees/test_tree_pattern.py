from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import forests

from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.tree_pattern import TreePattern


def slowly_matches(pattern: Tree, tree: Tree) -> bool:
    if pattern.label == "_" and not pattern.children:
        return True
    return (
        tree.label in pattern.label.split("|")
        and len(tree.children) == len(pattern.children)
        and all(slowly_matches(part, child) for part, child in zip(pattern.children, tree.children, strict=True))
    )


def nodes_of(tree: Tree) -> list[Tree]:
    return [node for child in tree.children for node in nodes_of(child)] + [tree]


@st.composite
def patterns_of(draw: st.DrawFn, tree: Tree) -> Tree:
    """A subtree with some of its own subtrees left out and some labels widened."""

    def widened(node: Tree) -> Tree:
        if draw(st.integers(0, 3)) == 0:
            return Tree("_")
        label = node.label if draw(st.booleans()) else f"{node.label}|something else"
        return Tree(label, [widened(child) for child in node.children])

    return widened(draw(st.sampled_from(nodes_of(tree))))


@given(st.data(), forests())
def test_matches_are_those_that_a_recursion_finds(data: st.DataObject, forest: Forest) -> None:
    if not len(forest):
        return
    pattern = data.draw(patterns_of(forest[0]))
    expected = [slowly_matches(pattern, node) for tree in forest for node in nodes_of(tree)]
    found = TreePattern(pattern)
    assert found.matches(forest).tolist() == expected
    assert found.occurs(forest)[0]
    assert found.occurs(forest).tolist() == [any(slowly_matches(pattern, node) for node in nodes_of(t)) for t in forest]


def test_patterns_for_trees_with_and_without_labels_at_their_brackets() -> None:
    forest = Forest.from_trees([Tree("Add", [Tree("x"), Tree("Pow", [Tree("y"), Tree("2")])]), Tree("x")])
    assert TreePattern.parse("(Pow _ 2)").occurs(forest).tolist() == [True, False]
    assert TreePattern.parse("(Pow|Mul _ 3)").occurs(forest).tolist() == [False, False]
    assert TreePattern.parse("_").occurs(forest).tolist() == [True, True]
    assert TreePattern.parse("_").occurs(Forest.from_trees([])).tolist() == []
    logic = Forest.from_trees([Tree("X", [Tree("and"), Tree("b")])])
    assert TreePattern.parse("( and _ )", first="child").occurs(logic).tolist() == [True]


def test_a_label_that_holds_a_bar_is_found_by_its_name() -> None:
    forest = Forest.from_trees([Tree("a|b"), Tree("a"), Tree("|")])
    assert TreePattern(Tree("a|b")).occurs(forest).tolist() == [True, True, False]
    assert TreePattern(Tree("|")).occurs(forest).tolist() == [False, False, True]
