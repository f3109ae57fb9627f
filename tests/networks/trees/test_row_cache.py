from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tree_networks import small_networks
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.nn import (
    LSTM,
    RowCache,
    StackTreeRNN,
    TreeLSTM,
    TreeNetwork,
)
from treemem.schedule.loader import TreeLoader
from treemem.schedule.remaining import remaining_rows
from treemem.schedule.schedule import GIVEN
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

FOREST = random_forest(3, 60, 14, widest=3)
INDEX = SubtreeIndex(FOREST, VOCABULARY)

NETWORKS = [*small_networks(dropout=0.5), StackTreeRNN(3, VOCABULARY, engine="autograd").double()]

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")


def encodings(network: TreeNetwork, batch_size: int, trees_per_example: int = 1) -> torch.Tensor:
    loader = TreeLoader(INDEX, None, batch_size, trees_per_example=trees_per_example)
    with torch.no_grad():
        return torch.cat([network(batch).root for batch in loader])


def cached(cache: RowCache, batch_size: int, trees_per_example: int = 1) -> torch.Tensor:
    examples = np.arange(len(FOREST) // trees_per_example)
    batches = [examples[first : first + batch_size] for first in range(0, len(examples), batch_size)]
    with torch.no_grad():
        return torch.cat(list(cache.encode_batches(batches, trees_per_example=trees_per_example)))


@pytest.mark.parametrize(
    "network",
    [*small_networks(dropout=0.5), StackTreeRNN(3, VOCABULARY, engine="autograd").double()],
    ids=lambda network: type(network).__name__,
)
@pytest.mark.parametrize(("max_bytes", "trees_per_example"), [(2**20, 2), (700, 1)])
def test_encodings_are_those_of_a_run_without(network: TreeNetwork, max_bytes: int, trees_per_example: int) -> None:
    cache = RowCache(network.eval(), INDEX, max_bytes=max_bytes)
    for batch_size in (7, 30):
        expected = encodings(network, batch_size, trees_per_example)
        found = cached(cache, batch_size, trees_per_example)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert cache.num_bytes <= max_bytes
    assert cache.hits > 0


def test_in_one_pass_no_row_is_run_twice() -> None:
    cache = RowCache(TreeLSTM(3, VOCABULARY).eval(), INDEX)
    cached(cache, 5)
    assert cache.computed == (INDEX.height > 0).sum()
    assert f"{cache.hits} rows found, {cache.computed} run" in repr(cache)


def test_rows_that_nothing_meets_again_are_not_kept() -> None:
    x = Tree("x")
    once = Tree("g", [Tree("f", [x])])
    twice = Tree("f", [Tree("f", [x, x])])
    index = SubtreeIndex(Forest.from_trees([once, twice, Tree("add", [twice, x])]), VOCABULARY)
    cache = RowCache(TreeLSTM(3, VOCABULARY).eval(), index)
    with torch.no_grad():
        cache.encode()
    assert cache.num_rows == 1
    cache.clear()
    assert cache.num_rows == cache.num_bytes == 0


def test_what_is_run_is_what_is_not_known() -> None:
    f, g = (lambda *below: Tree("f", list(below))), (lambda below: Tree("g", [below]))
    x, y = Tree("x"), Tree("y")
    shared = f(f(x), y)
    trees = [g(shared), f(shared, f(x)), y]
    index = SubtreeIndex(Forest.from_trees(trees), VOCABULARY)
    number = index.number[[4, 3]]  # g(shared), shared
    known = np.zeros(index.num_distinct, bool)
    known[number[1]] = True
    rows = remaining_rows(index, np.arange(3), known)
    assert rows.given.tolist() == [number[1]]
    assert len(rows.inner) == 3
    schedule = rows.schedule
    assert [segment.kind == GIVEN for segment in schedule.levels[0].segments] == [False, True]
    assert schedule.row_of_node.tolist()[:4] == [-1, -1, -1, 2]
    assert schedule.row_of_root.tolist()[2] == schedule.row_of_node.tolist()[-1]
    assert schedule.num_rows == 2 + 1 + 3
    known[index.number[index.forest.begin[1:] - 1]] = True
    everything = remaining_rows(index, np.arange(3), known)
    assert len(everything.inner) == 0
    assert everything.schedule.num_rows == len(everything.given) == 3
    nothing = remaining_rows(index, np.empty(0, np.int64), known)
    assert (nothing.schedule.num_rows, nothing.schedule.levels) == (0, ())


def test_new_weights_drop_what_was_kept() -> None:
    network = TreeLSTM(3, VOCABULARY).double().eval()
    cache = RowCache(network, INDEX)
    changes = (
        lambda: network.reset_parameters(),
        lambda: network.cell.maps.of(2).weight.data.mul_(1.5),
        lambda: network.load_state_dict(TreeLSTM(3, VOCABULARY).double().state_dict()),
        lambda: network.float(),
    )
    for change in (lambda: None, *changes):
        change()
        torch.testing.assert_close(cached(cache, 20), encodings(network, 20), rtol=0, atol=1e-6)


def test_new_weights_between_two_batches_of_a_pass_drop_what_was_kept() -> None:
    network = TreeLSTM(3, VOCABULARY).double().eval()
    cache = RowCache(network, INDEX)
    batches = cache.encode_batches([np.arange(60), np.arange(60)])
    with torch.no_grad():
        first = next(batches)
        network.reset_parameters()
        second = next(batches)
        torch.testing.assert_close(second, cache.encode(np.arange(60)), rtol=0, atol=1e-12)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, encodings(network, 60)[:60], rtol=0, atol=1e-12)


def test_rows_of_another_precision_are_not_mixed() -> None:
    network = TreeLSTM(8, VOCABULARY).eval()
    cache = RowCache(network, INDEX)
    exact = cached(cache, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(cached(cache, 20), encodings(network, 20), rtol=0, atol=0)
    torch.testing.assert_close(cached(cache, 20), exact, rtol=0, atol=0)


def test_a_batch_of_nothing_and_a_deep_chain_are_encoded() -> None:
    index = SubtreeIndex(Forest.from_trees([chain(3_000), chain(2_999)]), VOCABULARY)
    network = TreeLSTM(2, VOCABULARY).double().eval()
    cache = RowCache(network, index)
    with torch.no_grad():
        assert cache.encode([]).shape == (0, 1, 2)
        found = torch.cat([cache.encode([1]), cache.encode([0])])
    assert cache.computed == 3_000
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda network: network.train(), RecipeError, r"call eval\(\)"),
        (lambda network: torch.set_grad_enabled(True), RecipeError, "no gradients"),
        (lambda network: setattr(network, "engine", "naive"), RecipeError, "does not support shared subtrees"),
        (lambda network: None, GraphError, "examples 500 to 500"),
    ],
)
def test_runs_that_must_not_be_kept_are_refused(change: Any, error: type[Exception], words: str) -> None:
    network = TreeLSTM(3, VOCABULARY).eval()
    cache = RowCache(network, INDEX)
    with torch.no_grad():
        change(network)
        with pytest.raises(error, match=words):
            cache.encode([500])


@pytest.mark.parametrize(
    ("network", "options", "words"),
    [
        (TreeLSTM(3, input_size=2, arities=[1]), {}, "does not support shared subtrees"),
        (LSTM(3, VOCABULARY), {}, "does not support shared subtrees"),
        (TreeLSTM(3, VOCABULARY, direction="down"), {}, "does not support shared subtrees"),
        (TreeLSTM(3, VOCABULARY), {"max_bytes": 0}, "max_bytes must be at least 1"),
    ],
)
def test_networks_without_rows_to_keep_are_refused(network: Any, options: dict[str, int], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        RowCache(network, INDEX, **options)


def test_a_cache_goes_on_from_inference_mode() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY).eval()
    first, second = Tree("f", [Tree("g", ["x"])]), Tree("add", [Tree("g", ["x"]), Tree("f", ["y"])])
    cache = RowCache(layer, SubtreeIndex(Forest.from_trees([first, first, second, second]), VOCABULARY))
    with torch.inference_mode():
        cache.encode(slice(0, 1))
    with torch.no_grad():
        found = cache.encode(slice(2, 3))  # keeps rows that it has not met before
        torch.testing.assert_close(found, layer(TreeBatch.from_trees([second], VOCABULARY)).root)
