from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import VOCABULARY, chain, forests, random_forest, rebuilt_rows, shuffled_edges, subtrees

from treemem.errors import GraphError
from treemem.schedule import schedule as schedule_module
from treemem.schedule.schedule import Schedule
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def check_schedule(schedule: Schedule, trees: list[Tree]) -> None:
    nodes = [node for tree in trees for node in tree.postorder()]
    rows = rebuilt_rows(schedule, [node.label for node in nodes])
    assert [rows[row] for row in schedule.row_of_node.tolist()] == nodes
    assert [rows[row] for row in schedule.row_of_root.tolist()] == trees
    assert (schedule.num_nodes, schedule.num_trees, schedule.num_rows) == (len(nodes), len(trees), len(rows))

    row_of_node = schedule.row_of_node.tolist()
    assert schedule.node_of_row.tolist() == [row_of_node.index(row) for row in range(schedule.num_rows)]
    check_layout(schedule, rows)


def check_layout(schedule: Schedule, rows: list[Tree]) -> None:
    """Levels, segments and children lie one after the other, in order, without gaps."""
    kind = schedule.kind_of_row.tolist()
    assert schedule.arity_of_row.tolist() == [tree.arity for tree in rows]
    order = [(tree.height, tree.arity, kind[row]) for row, tree in enumerate(rows)]
    assert order == sorted(order)
    next_row = next_child = 0
    for height, level in enumerate(schedule.levels):
        assert next_row == level.begin < level.end
        assert len({(segment.arity, segment.kind) for segment in level.segments}) == len(level.segments)
        for segment in level.segments:
            assert all(type(bound) is int for bound in segment)
            assert (segment.begin, segment.first_child) == (next_row, next_child)
            assert set(order[segment.begin : segment.end]) == {(height, segment.arity, segment.kind)}
            next_row = segment.end
            next_child += (segment.end - segment.begin) * segment.arity
        assert next_row == level.end
    assert (next_row, next_child) == (schedule.num_rows, len(schedule.child))

    num_leaf_rows = sum(tree.arity == 0 for tree in rows)
    assert schedule.num_leaf_rows == len(schedule.symbol) == len(schedule.value) == num_leaf_rows
    for tree, symbol in zip(rows, schedule.symbol.tolist(), strict=False):
        assert symbol == (-1 if tree.value is not None else VOCABULARY.leaves.index(tree.label))


def is_equal(first: Schedule, second: Schedule) -> bool:
    pairs = [(getattr(first, field.name), getattr(second, field.name)) for field in fields(Schedule)]
    return all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) if isinstance(a, torch.Tensor) else a == b
        for a, b in pairs
    )


@given(forests())
def test_shared_rows_build_every_subtree_once(forest: Forest) -> None:
    schedule = Schedule.from_index(SubtreeIndex(forest, VOCABULARY))
    assert (schedule.num_rows, schedule.shared) == (len(set(subtrees(forest))), True)
    check_schedule(schedule, list(forest))


@given(forests())
def test_rows_of_their_own_build_every_node(forest: Forest) -> None:
    schedule = Schedule.from_index(SubtreeIndex(forest, VOCABULARY), share_subtrees=False)
    assert (schedule.num_rows, schedule.shared) == (forest.num_nodes, False)
    check_schedule(schedule, list(forest))


@given(forests(), st.booleans(), st.sampled_from([0, 256, 10**9]), st.data())
def test_a_choice_of_trees_is_scheduled_as_those_trees_are(
    forest: Forest, share_subtrees: bool, sparse: int, data: st.DataObject
) -> None:
    index = SubtreeIndex(forest, VOCABULARY)
    places = data.draw(st.lists(st.integers(0, len(forest) - 1)) if len(forest) else st.just([]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_module, "_SPARSE", sparse)
        chosen = Schedule.from_index(index, np.array(places, np.int64), share_subtrees)
    alone = Schedule.from_index(SubtreeIndex(forest[places], VOCABULARY), share_subtrees=share_subtrees)
    assert is_equal(chosen, alone)


def test_larger_batches() -> None:
    forest = random_forest(7, 60, 30)
    index = SubtreeIndex(forest, VOCABULARY)
    check_schedule(Schedule.from_index(index), list(forest))
    check_schedule(Schedule.from_index(index, share_subtrees=False), list(forest))


@given(forests(), st.integers(0, 99))
def test_edges_in_any_order_give_the_rows_of_the_forest(forest: Forest, seed: int) -> None:
    encoded = VOCABULARY.encode(forest)
    nodes = encoded.kind, encoded.symbol, forest.value
    in_order = Schedule.from_edges(forest.num_nodes, *shuffled_edges(forest), *nodes)
    roots = forest.begin[1:] - 1
    from_shuffled = Schedule.from_edges(forest.num_nodes, *shuffled_edges(forest, seed), *nodes, roots)
    assert is_equal(from_shuffled, in_order)
    check_schedule(from_shuffled, list(forest))
    unshared = Schedule.from_index(SubtreeIndex(forest, VOCABULARY), share_subtrees=False)
    assert from_shuffled.levels == unshared.levels
    assert torch.equal(from_shuffled.kind_of_row, unshared.kind_of_row)


def test_edges_without_labels_get_a_kind_for_each_arity() -> None:
    schedule = Schedule.from_edges(8, [0, 1, 2, 3, 4, 5, 6], [3, 3, 3, 4, 6, 7, 7])
    assert schedule.kind_of_row[schedule.row_of_node].tolist() == [0, 0, 0, 3, 1, 0, 1, 2]
    assert schedule.symbol.tolist() == [-1] * 4
    assert schedule.value.isnan().all()


def test_nodes_with_several_parents_run_where_that_is_allowed() -> None:
    edges = ([0, 0, 1, 1], [1, 1, 2, 3])
    with pytest.raises(GraphError, match="node 0 has 2 parents"):
        Schedule.from_edges(4, *edges)
    schedule = Schedule.from_edges(4, *edges, allow_several_parents=True)
    rows = rebuilt_rows(schedule, ["x", "square", "a", "b"])
    square = Tree("square", [Tree("x"), Tree("x")])
    assert [rows[row] for row in schedule.row_of_root.tolist()] == [Tree("a", [square]), Tree("b", [square])]


def test_no_edges_make_every_node_a_tree() -> None:
    schedule = Schedule.from_edges(3, [], [])
    assert schedule.num_trees == schedule.num_leaf_rows == 3
    assert len(schedule.levels) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": [0, 1], "target": [1, 0]}, "a cycle of 2 nodes"),
        ({"source": [0.5], "target": [1]}, "source must be a one-dimensional array of integers"),
        ({"source": [0], "target": [1], "kind": [0]}, "kind has 1 entries for 2 nodes"),
        ({"source": [0], "target": [1], "kind": [0, -1]}, "node 1 has a negative kind"),
        ({"source": [0], "target": [1], "symbol": [0, 1, 2]}, "symbol has 3 entries for 2 nodes"),
        ({"source": [0], "target": [1], "value": [0.0]}, r"value has shape \(1,\) for 2 nodes"),
        ({"source": [0], "target": [1], "roots": [2]}, "root 2 is none of the 2 nodes"),
        ({"source": [0], "target": [1], "position": [1]}, "node 1 has 1 child at the positions 1"),
    ],
)
def test_edges_that_cannot_be_scheduled_are_refused(arguments: dict[str, list[int]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Schedule.from_edges(2, **arguments)


def test_messages_call_nodes_as_they_are_told() -> None:
    with pytest.raises(GraphError, match="knot B has 2 parents"):
        Schedule.from_edges(3, [1, 1], [0, 2], name=lambda node: f"knot {'ABC'[node]}")


@pytest.mark.parametrize("share_subtrees", [True, False])
def test_size_0(share_subtrees: bool) -> None:
    index = SubtreeIndex(random_forest(0, 3, 5), VOCABULARY)
    for schedule in (
        Schedule.from_index(index, np.empty(0, np.int64), share_subtrees),
        Schedule.from_index(index, slice(0, 0), share_subtrees),
        Schedule.from_index(SubtreeIndex(Forest.from_trees([]), VOCABULARY), share_subtrees=share_subtrees),
        Schedule.from_edges(0, [], []),
    ):
        assert schedule.num_rows == schedule.num_nodes == schedule.num_trees == schedule.num_leaf_rows == 0
        assert schedule.levels == ()
        for tensor in (schedule.child, schedule.row_of_node, schedule.row_of_root, schedule.symbol):
            assert tensor.shape == (0,)
            assert tensor.dtype == torch.int64


@pytest.mark.parametrize("share_subtrees", [True, False])
def test_long_chains_and_wide_nodes(share_subtrees: bool) -> None:
    forest = Forest.from_trees([chain(5_000), Tree("max", [Tree("x")] * 5_000)])
    schedule = Schedule.from_index(SubtreeIndex(forest, Vocabulary.from_forest(forest)), share_subtrees=share_subtrees)
    assert len(schedule.levels) == 5_001
    assert schedule.num_rows == (5_002 if share_subtrees else forest.num_nodes)
    _pointer, child = forest.children()
    target = np.repeat(np.arange(forest.num_nodes), forest.arity)
    assert len(Schedule.from_edges(forest.num_nodes, child, target).levels) == 5_001


def test_tensors_have_the_types_that_index_and_move_together() -> None:
    schedule = Schedule.from_index(SubtreeIndex(random_forest(0, 3, 5), VOCABULARY))
    moved = schedule.to("meta")
    for field in fields(Schedule):
        item = getattr(schedule, field.name)
        if isinstance(item, torch.Tensor):
            assert item.dtype == (torch.float64 if field.name == "value" else torch.int64)
            assert getattr(moved, field.name).device.type == "meta"
    assert moved.device.type == "meta"
    assert moved.levels is schedule.levels


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([5], "tree 5 is asked for; there are 3, from 0"),
        ([0, -1], "tree -1 is asked for; there are 3, from 0"),
        ([0.5], "trees must be a one-dimensional array of integers, not float64"),
        ("a", "trees must be a one-dimensional array of integers"),
    ],
)
def test_trees_that_are_not_there_are_refused(trees: Any, message: str) -> None:
    index = SubtreeIndex(random_forest(0, 3, 5), VOCABULARY)
    with pytest.raises(GraphError, match=message):
        Schedule.from_index(index, trees)
