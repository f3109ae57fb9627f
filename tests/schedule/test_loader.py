from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.schedule import loader as loader_module
from treemem.schedule.loader import TreeLoader, make_ahead
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch

FOREST = random_forest(0, 24, 8)
INDEX = SubtreeIndex(FOREST, VOCABULARY)


def order(loader: TreeLoader) -> list[int]:
    return [example for batch in loader for example in batch.example_ids.tolist()]


def test_every_example_comes_once_in_order() -> None:
    loader = TreeLoader(INDEX, batch_size=7)
    sizes = [batch.num_examples for batch in loader]
    assert sizes == [7, 7, 7, 3]
    assert len(loader) == 4
    assert order(loader) == list(range(24))


@pytest.mark.parametrize("share_subtrees", [True, False])
def test_batches_hold_the_trees_of_their_examples(share_subtrees: bool) -> None:
    loader = TreeLoader(
        INDEX, [9, 2, 5, 0], 3, trees_per_example=2, shuffle=True, seed=4, share_subtrees=share_subtrees
    )
    for batch in loader:
        assert batch.schedule.shared == share_subtrees
        expected = [FOREST[2 * example + side] for example in batch.example_ids.tolist() for side in range(2)]
        assert list(batch.forest) == expected
    assert sorted(order(loader)) == [0, 2, 5, 9]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first, second = (TreeLoader(INDEX, batch_size=5, shuffle=True, seed=1) for _ in range(2))
    assert order(first) == order(first) == order(second)
    assert sorted(order(first)) == list(range(24))
    second.set_epoch(3)
    assert order(second) != order(first)
    first.set_epoch(3)
    assert order(second) == order(first)
    assert order(TreeLoader(INDEX, batch_size=5, shuffle=True, seed=2)) != order(
        TreeLoader(INDEX, batch_size=5, shuffle=True, seed=1)
    )
    assert order(TreeLoader(INDEX, batch_size=24, shuffle=True, seed=1, share_subtrees=False)) == order(
        TreeLoader(INDEX, batch_size=5, shuffle=True, seed=1)
    )


def test_no_examples_make_no_batches() -> None:
    loader = TreeLoader(INDEX, np.zeros(24, bool))
    assert (len(loader), list(loader)) == (0, [])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"nodes_per_batch": 0}, "nodes_per_batch must be at least 1, not 0"),
        ({"prefetch": -1}, "prefetch must be 0 or more, not -1"),
        ({"trees_per_example": 5}, "24 trees cannot be split into examples of 5"),
        ({"examples": [24]}, "examples 24 to 24"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number from 0"),
        ({"sort_by_length": True, "sort_by_height": True}, "sort_by_height and sort_by_length contradict each other"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(GraphError, match=named):
        TreeLoader(INDEX, **options)


def sizes(loader: TreeLoader) -> list[list[int]]:
    """The number of nodes of each example of each batch."""
    size = np.diff(FOREST.begin).reshape(-1, loader.trees_per_example).sum(1)
    return [size[batch.example_ids].tolist() for batch in loader]


@pytest.mark.parametrize("trees_per_example", [1, 2])
@pytest.mark.parametrize("limit", [1, 10, 17, 1000])
def test_batches_by_nodes_are_full_and_no_fuller(limit: int, trees_per_example: int) -> None:
    loader = TreeLoader(INDEX, nodes_per_batch=limit, trees_per_example=trees_per_example, shuffle=True)
    batches = sizes(loader)
    assert len(loader) == len(batches)
    assert sorted(order(loader)) == list(range(24 // trees_per_example))
    assert all(sum(batch) <= limit or len(batch) == 1 for batch in batches)
    assert all(sum(batch) + following[0] > limit for batch, following in pairwise(batches))


def heights(loader: TreeLoader) -> list[list[int]]:
    root = FOREST.begin[1:] - 1
    height = FOREST.height()[root].reshape(-1, loader.trees_per_example).max(1)
    return [height[batch.example_ids].tolist() for batch in loader]


@pytest.mark.parametrize("limits", [{"batch_size": 4}, {"nodes_per_batch": 12}])
@pytest.mark.parametrize("trees_per_example", [1, 2])
def test_sorting_by_height_puts_similar_examples_together(limits: dict[str, int], trees_per_example: int) -> None:
    loader = TreeLoader(INDEX, sort_by_height=True, trees_per_example=trees_per_example, **limits)
    found = [height for batch in heights(loader) for height in batch]
    assert found == sorted(found)
    assert sorted(order(loader)) == list(range(24 // trees_per_example))


def test_sorting_shuffled_examples_by_height_leaves_the_order_to_seed_and_epoch() -> None:
    def loader(seed: int = 1) -> TreeLoader:
        return TreeLoader(INDEX, batch_size=4, sort_by_height=True, shuffle=True, seed=seed)

    first = loader()
    assert len(first) == len(heights(first)) == 6
    assert sorted(order(first)) == list(range(24))
    batches = heights(first)
    assert all(batch == sorted(batch) for batch in batches)
    by_lowest = [height for batch in sorted(batches) for height in batch]
    assert by_lowest == sorted(by_lowest)
    assert batches != sorted(batches)
    assert order(first) == order(loader()) != order(loader(2))
    first.set_epoch(1)
    assert order(first) != order(loader())


@pytest.mark.parametrize("trees_per_example", [1, 2])
def test_sorting_by_length_goes_by_the_nodes_of_the_largest_tree(trees_per_example: int) -> None:
    nodes = np.diff(FOREST.begin).reshape(-1, trees_per_example).max(1)
    loader = TreeLoader(INDEX, batch_size=4, sort_by_length=True, trees_per_example=trees_per_example)
    found = order(loader)
    assert nodes[found].tolist() == sorted(nodes)
    shuffled = TreeLoader(INDEX, batch_size=2, sort_by_length=True, shuffle=True, trees_per_example=trees_per_example)
    assert sorted(order(shuffled)) == sorted(found)
    assert order(shuffled) != found
    assert all(sorted(nodes[batch.example_ids]) == nodes[batch.example_ids].tolist() for batch in shuffled)


def test_shuffled_examples_are_sorted_within_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "_WINDOW", 2)
    loader = TreeLoader(INDEX, batch_size=2, sort_by_height=True, shuffle=True, seed=3)
    drawn = np.random.default_rng([3, 0]).permutation(np.arange(24))
    height = FOREST.height()[FOREST.begin[1:] - 1]
    expected = set()
    for begin in range(0, 24, 4):
        window = sorted(drawn[begin : begin + 4].tolist(), key=lambda tree: height[tree])
        expected |= {tuple(window[:2]), tuple(window[2:])}
    assert {tuple(batch.tolist()) for batch in loader.plan()} == expected
    assert sorted(order(loader)) == list(range(24))


@pytest.mark.parametrize("prefetch", [1, 2, 50])
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "sort_by_height": True}, {"nodes_per_batch": 9}])
def test_batches_made_ahead_are_the_same(prefetch: int, options: dict[str, int]) -> None:
    ahead, at_once = (TreeLoader(INDEX, batch_size=5, prefetch=number, **options) for number in (prefetch, 0))
    pairs = list(zip(ahead, at_once, strict=True))
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.example_ids, theirs.example_ids)
        np.testing.assert_array_equal(ours.schedule.child, theirs.schedule.child)
        np.testing.assert_array_equal(ours.schedule.row_of_node, theirs.schedule.row_of_node)
    assert ahead.seconds > 0
    assert loader_threads() == []


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("treemem-loader")]


def test_a_loop_that_is_left_ends_the_thread() -> None:
    loader = TreeLoader(INDEX, batch_size=2, prefetch=3)
    for _ in loader:
        assert len(loader_threads()) == 1
        break
    assert loader_threads() == []
    batches = loader.batches()
    next(batches)
    assert len(loader_threads()) == 1
    del batches
    assert loader_threads() == []


def test_no_more_than_asked_for_is_made_ahead() -> None:
    made: list[int] = []
    results = make_ahead(_noting(made), range(10), 3)
    assert next(results) == 0
    results.close()
    assert set(made) <= {0, 1, 2, 3}
    assert list(make_ahead(_noting(made), range(10), 3)) == list(range(10))


def _noting(made: list[int]) -> Callable[[int], int]:
    def make(part: int) -> int:
        made.append(part)
        return part

    return make


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_in_making_a_batch_is_raised_where_it_was_to_be_had(
    prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = TreeBatch.from_index

    def failing(index: SubtreeIndex, examples: np.ndarray, **options: object) -> TreeBatch:
        if 6 in examples:
            raise GraphError("no such tree")
        return make(index, examples, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(TreeBatch, "from_index", failing)
    batches = TreeLoader(INDEX, batch_size=3, prefetch=prefetch).batches()
    assert [next(batches).example_ids[0] for _ in range(2)] == [0, 3]
    with pytest.raises(GraphError, match="no such tree"):
        next(batches)
    assert loader_threads() == []
