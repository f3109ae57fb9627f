from __future__ import annotations

import pytest
import torch
from engine_parity import REFERENCE, assert_same, results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_networks import NETWORKS, make
from tree_strategies import VOCABULARY, forests, random_forest

from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

ONE_OF_EACH = [
    "tree rnn",
    "tree lstm",
    "child sum",
    "tree cell",
    "stack rnn",
    "stack rnn own",
    "stack lstm normalize no-op",
]


@pytest.mark.parametrize("name", NETWORKS)
def test_all_engines_agree_with_and_without_shared_subtrees(name: str) -> None:
    forest = random_forest(seed=1, num_trees=5, size=12)
    layer = make(name)
    expected = results(layer, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False), REFERENCE)
    assert any(value.abs().max() > 1e-3 for name, value in expected.items() if name.startswith("gradient"))
    for share in (True, False):
        batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)
        for engine in ("fused", "recursive"):
            assert_same(results(layer, batch, engine), expected, f"{engine}, shared: {share}")
        with compile_steps(False):
            assert_same(results(layer, batch, "fused"), expected, f"torch, shared: {share}")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_fused_agrees_with_naive_in_float32(name: str) -> None:
    layer = make(name).float()
    batch = TreeBatch.from_forest(random_forest(seed=2, num_trees=6, size=12), VOCABULARY)
    assert_same(results(layer, batch, "fused"), results(layer, batch, REFERENCE), "float32")


@pytest.mark.parametrize("node_features", [False, True])
@pytest.mark.parametrize("name", [*ONE_OF_EACH, "child sum per kind", "stack lstm queue", "tree lstm both ways"])
def test_all_engines_agree_on_features(name: str, node_features: bool) -> None:
    forest = random_forest(seed=3, num_trees=4, size=12)
    layer = make(name, input_size=2, node_features=node_features)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False)
    feat = torch.randn(forest.num_nodes, 2, dtype=torch.float64)
    expected = results(layer, batch, REFERENCE, feat)
    for engine in ("fused", "recursive"):
        assert_same(results(layer, batch, engine, feat), expected, engine)
    with compile_steps(False):
        assert_same(results(layer, batch, "fused", feat), expected, "torch")
    gradient = expected["gradient of feat"]
    inner = torch.from_numpy(forest.arity > 0)
    assert bool((gradient[inner] != 0).any()) == node_features
    assert (gradient[~inner] != 0).any()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forest=forests(), share=st.booleans(), name=st.sampled_from(sorted(NETWORKS)))
def test_engines_agree_on_any_forest(forest: Forest, share: bool, name: str) -> None:
    layer = make(name, hidden_size=2)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)
    expected = results(layer, batch, REFERENCE)
    assert expected["root"].shape == (len(forest), 1, layer.hidden_size)
    for engine in ("fused", "recursive"):
        assert_same(results(layer, batch, engine), expected, f"{name}, {engine}")
    with compile_steps(False):
        assert_same(results(layer, batch, "fused"), expected, f"{name}, torch")


@pytest.mark.parametrize("name", NETWORKS)
def test_no_grad_gives_the_same_states(name: str) -> None:
    layer = make(name)
    batch = TreeBatch.from_forest(random_forest(seed=4, num_trees=6, size=12), VOCABULARY)
    with torch.no_grad():
        states = layer(batch)
    assert not states.root.requires_grad
    expected = layer(batch)
    for name in states.names:
        torch.testing.assert_close(states[name], expected[name], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree lstm", "child sum", "tree cell", "stack rnn", "stack lstm normalize no-op"])
def test_fused_equals_naive_on_many_random_trees(name: str) -> None:
    layer = make(name)
    for seed in range(10):
        forest = random_forest(seed=seed, num_trees=10_000, size=30)
        batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=seed % 2 == 0)
        assert_same(results(layer, batch, "fused"), results(layer, batch, REFERENCE), f"{name}, seed {seed}")
