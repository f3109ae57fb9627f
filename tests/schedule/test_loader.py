from __future__ import annotations

import numpy as np
import pytest
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex

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


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(GraphError, match="batch_size must be at least 1, not 0"):
        TreeLoader(INDEX, batch_size=0)
    with pytest.raises(GraphError, match="24 trees cannot be split into examples of 5"):
        TreeLoader(INDEX, trees_per_example=5)
    with pytest.raises(GraphError, match="examples 24 to 24"):
        TreeLoader(INDEX, [24])
