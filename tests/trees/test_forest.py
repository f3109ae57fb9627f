from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import chain, forests, random_forest, trees

from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

PAIR = Tree("Equality", [Tree("Add", [Tree("x"), Tree("1")]), Tree("y")])


def slow_structure(trees: list[Tree]) -> tuple[list[list[int]], list[int], list[int]]:
    """Children, parent and depth of every node, followed one by one."""
    children: list[list[int]] = []
    for tree in trees:
        roots: list[int] = []
        for node in tree.postorder():
            first = len(roots) - node.arity
            children.append(roots[first:])
            roots[first:] = [len(children) - 1]
    parent = [-1] * len(children)
    for node, below in enumerate(children):
        for child in below:
            parent[child] = node
    depth = [0] * len(children)
    for node in reversed(range(len(children))):
        depth[node] = 0 if parent[node] < 0 else depth[parent[node]] + 1
    return children, parent, depth


def check_structure(forest: Forest, expected: list[Tree]) -> None:
    children, parent, depth = slow_structure(expected)
    nodes = [node for tree in expected for node in tree.postorder()]
    pointer, child = forest.children()
    assert [child[a:b].tolist() for a, b in itertools.pairwise(pointer)] == children
    assert forest.parent().tolist() == parent
    assert forest.depth().tolist() == depth
    assert forest.height().tolist() == [node.height for node in nodes]
    assert forest.subtree_size().tolist() == [node.size for node in nodes]
    assert (np.arange(forest.num_nodes) + 1 - forest.subtree_begin()).tolist() == [node.size for node in nodes]


@given(st.lists(trees(), max_size=6))
def test_trees_come_back_and_the_structure_is_theirs(original: list[Tree]) -> None:
    forest = Forest.from_trees(original)
    assert len(forest) == len(original)
    assert list(forest) == original
    check_structure(forest, original)


@pytest.mark.parametrize(("num_trees", "size"), [(400, 30), (3, 2000), (1, 1)])
def test_structure_of_larger_forests(num_trees: int, size: int) -> None:
    forest = random_forest(0, num_trees, size)
    check_structure(forest, list(forest))


def test_structure_where_stack_sizes_and_heights_need_more_than_16_bits() -> None:
    wide = Tree("f", [Tree("x")] * 70_000)
    original = [chain(70_000), wide, Tree("f", [wide, Tree("y"), chain(3)])]
    check_structure(Forest.from_trees(original), original)


@given(forests(), st.data())
def test_choosing_trees(forest: Forest, data: st.DataObject) -> None:
    original = list(forest)
    forest = Forest.from_trees(
        original, node_data={"index": np.arange(forest.num_nodes)}, tree_data={"index": np.arange(len(original))}
    )
    where = data.draw(st.slices(len(original)))
    assert list(forest[where]) == original[where]
    assert forest[where].tree_data["index"].tolist() == list(range(len(original)))[where]
    check_structure(forest[where], original[where])

    mask = data.draw(st.lists(st.booleans(), min_size=len(original), max_size=len(original)))
    assert list(forest[mask]) == [tree for tree, chosen in zip(original, mask, strict=True) if chosen]
    if original:
        places = data.draw(st.lists(st.integers(-len(original), len(original) - 1)))
        chosen = forest[np.array(places, np.int64)]
        assert list(chosen) == [original[place] for place in places]
        for tree, place in zip(range(len(chosen)), places, strict=True):
            nodes = chosen.node_data["index"][chosen.begin[tree] : chosen.begin[tree + 1]].tolist()
            assert nodes == list(range(forest.begin[place % len(original)], forest.begin[place % len(original) + 1]))


def test_a_tree_out_of_range_is_an_index_error() -> None:
    forest = Forest.from_trees([PAIR])
    assert forest[-1] == forest[np.int64(0)] == PAIR
    for index in (1, -2):
        with pytest.raises(IndexError, match="of a forest of 1"):
            forest[index]


@pytest.mark.parametrize("index", [[5], [0, -3], "a", 1.5, None, [[0, 1]], [True], [0.5], ["a"]])
def test_what_chooses_no_trees_is_refused(index: Any) -> None:
    with pytest.raises(GraphError, match="chooses no trees of a forest of 2"):
        Forest.from_trees([PAIR, PAIR])[index]


def test_a_list_of_trees_is_asked_for_where_something_else_is_given() -> None:
    with pytest.raises(GraphError, match="put a single tree in a list"):
        Forest.from_trees(PAIR)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="a list of trees is needed, not 'xyz'"):
        Forest.from_trees("xyz")
    with pytest.raises(GraphError, match="put a single tree in a list"):
        Forest.from_trees({"label": "x"})
    with pytest.raises(GraphError, match="a list of trees is needed, not 5"):
        Forest.from_trees(5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the children of 'f' must be several Trees; put the single Tree in a list"):
        Tree("f", PAIR)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the children of 'f' must be several Trees; not int"):
        Tree("f", 5)  # type: ignore[arg-type]


@given(st.lists(st.tuples(trees(), trees()), max_size=5))
def test_split_roots_gives_the_sides_adjacent(pairs: list[tuple[Tree, Tree]]) -> None:
    equations = [Tree("Equality", pair) for pair in pairs]
    forest = Forest.from_trees(equations, tree_data={"depth": [tree.height for tree in equations]})
    forest = Forest.from_trees(
        equations, node_data={"label": forest.label}, tree_data={"depth": [tree.height for tree in equations]}
    )
    sides = forest.split_roots()
    assert list(sides) == [side for pair in pairs for side in pair]
    assert sides.node_data["label"].tolist() == sides.label.tolist()
    assert sides.tree_data["depth"].tolist() == [tree.height for tree in equations for _ in range(2)]


@pytest.mark.parametrize("other", [Tree("x"), Tree("not", [PAIR])])
def test_split_roots_refuses_roots_that_differ(other: Tree) -> None:
    with pytest.raises(GraphError, match=f"tree 2 has {other.arity} subtrees under its root and tree 1 has 2"):
        Forest.from_trees([PAIR, other]).split_roots()
    with pytest.raises(GraphError, match="at least one"):
        Forest.from_trees([Tree("x")]).split_roots()


@given(st.lists(forests(max_trees=3), max_size=4))
def test_concatenation_is_the_trees_one_after_the_other(parts: list[Forest]) -> None:
    joined = Forest.concatenate(parts)
    assert list(joined) == [tree for part in parts for tree in part]
    assert joined == Forest.from_trees(list(joined))
    assert len(set(joined.labels)) == len(joined.labels)


def test_concatenation_joins_data_and_refuses_data_that_do_not_fit() -> None:
    def labelled(**tree_data: list[object]) -> Forest:
        return Forest.from_trees([PAIR], tree_data=tree_data)

    joined = Forest.concatenate([labelled(id=["a"]), labelled(id=["long name"])])
    assert joined.tree_data["id"].tolist() == ["a", "long name"]
    with pytest.raises(GraphError, match=r"forest 1 has tree_data \[\] and forest 0 has \['id'\]"):
        Forest.concatenate([labelled(id=["a"]), labelled()])
    with pytest.raises(GraphError, match="differ in shape or type"):
        Forest.concatenate([labelled(id=["a"]), labelled(id=[1])])
    with pytest.raises(GraphError, match="differ in shape or type"):
        Forest.concatenate([labelled(id=[1]), labelled(id=[[1, 2]])])


@given(forests())
def test_pickling_keeps_everything(forest: Forest) -> None:
    again = pickle.loads(pickle.dumps(forest))
    assert again == forest
    assert again.labels == forest.labels


def test_equality_looks_at_labels_and_data_not_at_the_order_of_the_table() -> None:
    first = Forest.from_arrays(["x", "f"], [0, 1], [0, 1], [0, 2])
    assert first == Forest.from_arrays(["f", "y", "x"], [2, 0], [0, 1], [0, 2])
    assert first != Forest.from_arrays(["f", "x"], [0, 1], [0, 1], [0, 2])
    assert first != Forest.from_arrays(["x", "f"], [0, 1], [0, 1], [0, 2], [1.0, np.nan])
    assert first != Forest.from_arrays(["x", "f"], [0, 1], [0, 1], [0, 2], tree_data={"depth": [1]})
    assert first != "a forest"


def test_arrays_cannot_be_written() -> None:
    forest = Forest.from_trees([PAIR, Tree("Number", value=2.0)], tree_data={"depth": [2, 0]})
    arrays = [forest.label, forest.arity, forest.begin, forest.value, forest.tree_data["depth"], *forest.children()]
    for array in [*arrays, forest.parent(), forest.height(), forest.depth()]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["x", "x"]}, "labels must be distinct strings"),
        ({"labels": ["x", 2]}, "labels must be distinct strings"),
        ({"label": [0, 2, 0]}, r"tree 1, node 2 \(in post-order\): its label is no index into the table of 2 labels"),
        ({"label": [0, -1, 0]}, "tree 1, node 2"),
        ({"label": [0.0, 1.0, 0.0]}, "label must be a one-dimensional array of integers"),
        ({"label": [[0, 1, 0]]}, "label must be a one-dimensional array of integers"),
        ({"label": [0, 1, 2**40]}, "beyond int32"),
        ({"arity": [0, 1]}, "begin must run from 0 to the number of nodes"),
        ({"arity": [0, 2, 0]}, r"tree 1, node 2 \(in post-order\): it wants more children than nodes precede it"),
        ({"arity": [0, 1, 1]}, r"tree 2, node 1 \(in post-order\): it wants more children"),
        ({"arity": [0, -1, 0]}, "tree 1, node 2 .*: its arity is negative"),
        ({"arity": [0, 0, 0]}, "tree 1: its nodes make 2 trees, not one"),
        ({"begin": [0, 2]}, "begin must run from 0"),
        ({"begin": []}, "begin must run from 0"),
        ({"begin": [0, 2, 2, 3]}, "tree 2 has no node"),
        ({"begin": [0, 3, 2, 3]}, "tree 2 has no node"),
        ({"value": [1.0, np.nan]}, "2 values for 3 nodes"),
        ({"value": [1.0, 2.0, np.nan]}, "tree 1, node 2 .*: it has children and a value"),
        ({"value": [np.nan, np.nan, np.inf]}, "tree 2, node 1 .*: its value is infinite"),
        ({"value": ["a", "b", "c"]}, "value must be a one-dimensional array of numbers"),
        ({"node_data": {"class": [1, 2]}}, r"node_data\['class'\] has shape \(2,\); its first dimension must be 3"),
        ({"tree_data": {"depth": 3}}, r"tree_data\['depth'\] has shape \(\)"),
        ({"tree_data": {"depth": [None, 2]}}, "must hold numbers, booleans or strings, not object"),
    ],
)
def test_arrays_that_are_no_forest_are_refused(changes: dict[str, object], message: str) -> None:
    arrays = {"labels": ["x", "f"], "label": [0, 1, 0], "arity": [0, 1, 0], "begin": [0, 2, 3]}
    assert len(Forest.from_arrays(**arrays)) == 2
    with pytest.raises(GraphError, match=message):
        Forest.from_arrays(**{**arrays, **changes})


def test_data_can_be_replaced_without_copying_the_trees() -> None:
    forest = Forest.from_trees([Tree("x"), Tree("f", [Tree("x")])], tree_data={"label": [1, 0]})
    other = forest.with_data(tree_data={"depth": [0, 1]})
    assert list(other.tree_data) == ["depth"]
    assert list(other) == list(forest)
    assert np.shares_memory(other.label, forest.label)
    with pytest.raises(GraphError, match="depth"):
        forest.with_data(tree_data={"depth": [0]})
