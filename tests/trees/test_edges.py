from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import chain, forests, random_forest, shuffled_edges

from treemem.errors import GraphError
from treemem.trees import edges
from treemem.trees.edges import find_edge_heights, forest_of_edges, order_children
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


def renamed_edges(forest: Forest, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Source, target and position under new node numbers and in a new order of edges; and the new number of each node.

    Roots keep their order, so that the trees do.
    """
    renamed = np.random.default_rng(seed).permutation(forest.num_nodes)
    root = forest.begin[1:] - 1
    renamed[root] = np.sort(renamed[root])
    source, target, position = shuffled_edges(forest, seed)
    return renamed[source], renamed[target], position, renamed


@given(forests(), st.integers(0, 99))
def test_a_forest_comes_back_whatever_the_numbers_of_nodes_and_edges(forest: Forest, seed: int) -> None:
    source, target, position, renamed = renamed_edges(forest, seed)
    label = np.empty(forest.num_nodes, np.int64)
    label[renamed] = forest.label
    value = None
    if forest.value is not None:
        value = np.empty(forest.num_nodes)
        value[renamed] = forest.value
    assert forest_of_edges(source, target, position, forest.labels, label, value)[0] == forest


def test_without_positions_children_stand_in_the_order_of_edges() -> None:
    pointer, child = order_children(4, np.array([2, 0, 1]), np.array([3, 3, 3]), None)
    assert pointer.tolist() == [0, 0, 0, 0, 3]
    assert child.tolist() == [2, 0, 1]


@pytest.mark.parametrize("narrow", [1, 10**9])
def test_heights_of_trees(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_NARROW", narrow)
    forest = random_forest(3, 60, 40)
    assert find_edge_heights(*forest.children()).tolist() == forest.height().tolist()


@pytest.mark.parametrize("narrow", [1, 10**9])
def test_heights_of_nodes_with_several_parents(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_NARROW", narrow)
    source = np.array([0, 0, 0, 1, 2, 1])
    target = np.array([1, 2, 2, 2, 3, 3])
    pointer, child = order_children(5, source, target, None, allow_several_parents=True)
    assert find_edge_heights(pointer, child).tolist() == [0, 1, 2, 3, 0]


def test_a_long_chain_and_a_wide_node() -> None:
    for tree in (chain(20_000), Tree("f", [Tree("x")] * 50_000)):
        forest = Forest.from_trees([tree])
        source, target, position, _ = renamed_edges(forest, 0)
        pointer, child = order_children(forest.num_nodes, source, target, position)
        assert find_edge_heights(pointer, child).max() == tree.height


@pytest.mark.parametrize(
    ("source", "target", "position", "message"),
    [
        ([0, 0], [1, 2], None, r"node 0 has 2 parents \(node 1, node 2\); in a tree it has one"),
        ([0, 0], [0, 1], None, "node 0 has an edge to itself"),
        ([2, 0, 2], [0, 2, 1], None, "node 2 has edges to and from node 0"),
        ([0, 0], [1, 1], [0, 1], r"node 0 has 2 parents \(node 1, node 1\)"),
        ([0, 1], [2, 2], [0, 2], "node 2 has 2 children at the positions 0, 2; they must be 0 to 1, each once"),
        ([0, 1], [2, 2], [1, 2], "node 2 has 2 children at the positions 1, 2"),
        ([0, 1], [2, 2], [1, 1], "node 2 has 2 children at the positions 1, 1"),
        ([0, 1], [2, 2], [-1, 0], "node 2 has 2 children at the positions -1, 0"),
        ([0, 1], [2, 2], [0, 2**62], "node 2 has 2 children at the positions 0, 4611686018427387904"),
        ([0, 1], [2, 3], [0, 1], "node 3 has 1 child at the positions 1"),
        ([0], [5], None, "edge 0 touches node 5; there are 4 nodes"),
        ([-1], [1], None, "edge 0 touches node -1"),
        ([0, 1], [2], None, "there are 2 sources, 1 targets"),
        ([0, 1], [2, 2], [0], "there are 2 sources, 2 targets, 1 positions"),
    ],
)
def test_edges_that_make_no_trees_are_refused(
    source: list[int], target: list[int], position: list[int] | None, message: str
) -> None:
    place = None if position is None else np.array(position, np.int64)
    with pytest.raises(GraphError, match=message):
        order_children(4, np.array(source, np.int64), np.array(target, np.int64), place)


@pytest.mark.parametrize("narrow", [1, 10**9])
def test_a_cycle_is_named_in_the_direction_of_its_edges(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_NARROW", narrow)
    pointer, child = order_children(
        6, np.array([0, 1, 2, 3, 3]), np.array([1, 2, 3, 1, 5]), None, allow_several_parents=True
    )
    with pytest.raises(
        GraphError, match=r"a cycle of 3 nodes, from child to parent: node 2 -> node 3 -> node 1 -> node 2"
    ):
        find_edge_heights(pointer, child)
    pointer, child = order_children(1, np.array([0]), np.array([0]), None)
    with pytest.raises(GraphError, match="node 0 has an edge to itself; remove it"):
        find_edge_heights(pointer, child)
