from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from engine_parity import REFERENCE, assert_same, results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode
from tree_networks import NETWORKS, ONE_OF_EACH, make
from tree_strategies import VOCABULARY, forests, random_forest

from treemem.engines import native as native_engine
from treemem.engines.propagate import Engine
from treemem.errors import RecipeError
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.nn import TreeLSTM, TreeNetwork
from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


@pytest.mark.parametrize("name", NETWORKS)
def test_all_engines_agree_with_and_without_shared_subtrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_ROWS_PER_THREAD", 1)
    layer, forest = make(name), random_forest(seed=1, num_trees=7, size=12, widest=3)
    expected = results(layer, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False), REFERENCE)
    assert any(value.abs().max() > 1e-3 for key, value in expected.items() if key.startswith("gradient"))
    in_cpp: Engine = "native" if compile_mode.compiler() and "own" not in name.split() else "auto"
    for share in (True, False):
        batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)
        assert_same(results(layer, batch, "autograd"), expected, f"autograd, shared: {share}")
        for threads in (1, 3):
            with torch_threads(threads):
                found, again = (results(layer, batch, in_cpp) for _ in range(2))
            assert_same(found, expected, f"{in_cpp}, shared: {share}, {threads} threads")
            assert all(torch.equal(value, again[key]) for key, value in found.items())
        with torch.no_grad():
            states = layer(batch)
        assert_same({each: states[each] for each in states.names}, {each: expected[each] for each in states.names}, "")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_engines_agree_in_float32(name: str) -> None:
    layer = make(name).float()
    batch = TreeBatch.from_forest(random_forest(seed=2, num_trees=6, size=12, widest=3), VOCABULARY)
    expected = results(layer, batch, REFERENCE)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch, engine), expected, f"{engine}, float32")


@pytest.mark.parametrize(
    ("name", "node_features"),
    [
        *((name, True) for name in (*ONE_OF_EACH, "child sum per kind", "stack lstm queue", "tree lstm both ways")),
        *((name, False) for name in ("tree lstm", "child sum", "stack lstm normalize no-op")),
    ],
)
def test_all_engines_agree_on_features(name: str, node_features: bool) -> None:
    forest = random_forest(seed=3, num_trees=4, size=12, widest=3)
    layer = make(name, input_size=2, node_features=node_features)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False)
    feat = torch.randn(forest.num_nodes, 2, dtype=torch.float64)
    expected = results(layer, batch, REFERENCE, feat)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch, engine, feat), expected, engine)
    gradient = expected["gradient of feat"]
    inner = torch.from_numpy(forest.arity > 0)
    assert bool((gradient[inner] != 0).any()) == node_features
    assert (gradient[~inner] != 0).any()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forest=forests(), share=st.booleans(), name=st.sampled_from(sorted(NETWORKS)))
def test_engines_agree_on_any_forest(forest: Forest, share: bool, name: str) -> None:
    layer = make(name)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)
    expected = results(layer, batch, REFERENCE)
    assert expected["root"].shape == (len(forest), 1, layer.hidden_size)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch, engine), expected, f"{name}, {engine}")


@pytest.mark.parametrize(("former", "present"), [("fused", "auto"), ("recursive", "autograd")])
def test_former_names_of_engines_stand_for_present_ones(former: Any, present: str) -> None:
    layer = TreeLSTM(3, VOCABULARY, engine=former)
    assert layer.engine == layer.options["engine"] == present
    layer.engine = "naive"
    layer.engine = former
    assert layer.engine == layer.options["engine"] == present
    network = TreeNetwork(layer.cell, vocabulary=VOCABULARY, embedding_size=3, engine=former)
    assert network.engine == present


def other_precision(layer: TreeNetwork) -> None:
    layer.bfloat16()


def two_precisions(layer: TreeNetwork) -> None:
    layer.cell.double()  # type: ignore[attr-defined]


def hooked(layer: TreeNetwork) -> None:
    layer.cell.register_forward_hook(lambda *_: None)  # type: ignore[attr-defined]


@needs_compiler
@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("stack rnn own", None, "OwnStackTreeRNNCell cannot be printed: different positions of a state meet.*"),
        ("tree rnn", other_precision, "float32 or in float64, not in bfloat16"),
        ("tree rnn", two_precisions, "not in float32 and float64"),
        ("tree rnn", hooked, "TreeRNNCell has forward hooks, which would not fire"),
    ],
)
def test_the_native_engine_says_why_it_cannot_run(
    name: str, change: Callable[[TreeNetwork], None] | None, reason: str
) -> None:
    layer = make(name).float()
    if change is not None:
        change(layer)
    batch = TreeBatch.from_forest(random_forest(seed=2, num_trees=2, size=9, widest=3), VOCABULARY)
    layer.engine = "native"
    with pytest.raises(RecipeError, match=f"engine 'native' cannot run here: .*{reason}; .* 'auto' or 'autograd'"):
        layer(batch)
    if change is not two_precisions:  # which no engine runs
        layer.engine = "auto"
        layer(batch)


@needs_compiler
@pytest.mark.parametrize(
    ("surroundings", "reason"),
    [
        (lambda: torch.autocast("cpu", torch.bfloat16), "does not run under autocast"),
        (lambda: compile_steps(False), "compiling is switched off"),
        (forward_ad.dual_level, "forward-mode AD"),
        (partial(FlopCounterMode, display=False), "must see each operation"),
    ],
)
def test_the_native_engine_says_where_it_does_not_run(surroundings: Any, reason: str) -> None:
    layer = TreeLSTM(3, VOCABULARY, engine="native")
    batch = TreeBatch.from_forest(random_forest(seed=2, num_trees=2, size=9, widest=3), VOCABULARY)
    with surroundings(), pytest.raises(RecipeError, match=reason):
        layer(batch)
    layer(batch)


@pytest.mark.parametrize("name", NETWORKS)
def test_second_derivatives_under_autograd_are_those_of_differences(name: str) -> None:
    layer = make(name, hidden_size=2, input_size=2, engine="autograd")
    batch = TreeBatch.from_forest(
        random_forest(seed=2, num_trees=2, size=6, widest=3), VOCABULARY, share_subtrees=False
    )
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(feat: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (batch, feat)).root

    assert torch.autograd.gradgradcheck(run, (feat, *parameters), fast_mode=True)
