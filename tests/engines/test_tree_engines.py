"""Every engine of tree layers: equal to the definition on every output and gradient, and right at the edges."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, needs_dgl, results
from fake_device import DEVICE, fake_device
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode
from tree_networks import LAYERS, NETWORKS, ONE_OF_EACH, make
from tree_strategies import VOCABULARY, chain, forests, random_forest

from treemem.engines import native as native_engine
from treemem.engines.propagate import Engine
from treemem.errors import RecipeError
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.nn import (
    ChildSumTreeLSTM,
    OrderedMemory,
    StackTreeLSTM,
    TreeCell,
    TreeLSTM,
    TreeNetwork,
)
from treemem.ops import State, compile_steps
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
every_layer = pytest.mark.parametrize("layer_class", LAYERS)


class WeighedSum(torch.nn.Module):
    """A user's cell that tells the children's positions apart; under autocast its products are short."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(input_size, 3)
        self.maps = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(3))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": self.map(x)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        total = sum(own(h) for own, h in zip(self.maps, children["h"].unbind(1), strict=False))
        return {"h": torch.tanh(total if x is None else total + self.map(x))}


def networks(input_size: int | None = None) -> list[TreeNetwork]:
    """A network of each layer, and of a user's cell; over labels, or over features of nodes of up to 3 children."""
    torch.manual_seed(0)
    if input_size is None:
        made: list[TreeNetwork] = [layer(3, VOCABULARY) for layer in LAYERS]
        return [*made, TreeNetwork(WeighedSum(3), vocabulary=VOCABULARY, embedding_size=3)]
    options: dict[str, Any] = {"input_size": input_size, "node_features": True}
    made = [layer(3, **options, **({} if layer is ChildSumTreeLSTM else {"arities": (1, 2, 3)})) for layer in LAYERS]
    return [network.double() for network in (*made, TreeNetwork(WeighedSum(input_size), **options))]


every_network = pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
every_network_of_features = pytest.mark.parametrize("network", networks(2), ids=lambda network: type(network).__name__)


def batch_of(seed: int = 6, num_trees: int = 6, share: bool = True, size: int = 12) -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed, num_trees, size, widest=3), VOCABULARY, share_subtrees=share)


@pytest.mark.parametrize("name", NETWORKS)
def test_all_engines_agree_with_and_without_shared_subtrees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_ROWS_PER_THREAD", 1)
    layer = make(name)
    expected = results(layer, batch_of(1, 7, share=False), REFERENCE)
    assert any(value.abs().max() > 1e-3 for key, value in expected.items() if key.startswith("gradient"))
    in_cpp: Engine = "native" if compile_mode.compiler() and "own" not in name.split() else "auto"
    for share in (True, False):
        batch = batch_of(1, 7, share=share)
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
    expected = results(layer, batch_of(2), REFERENCE)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch_of(2), engine), expected, f"{engine}, float32")


@pytest.mark.parametrize(
    ("name", "node_features", "width"),
    [
        *((name, True, 2) for name in (*ONE_OF_EACH, "child sum per kind", "stack lstm queue", "tree lstm both ways")),
        *((name, False, 2) for name in ("tree lstm", "child sum", "stack lstm normalize no-op")),
        ("tree lstm", False, 0),
        ("stack lstm", True, 0),
    ],
)
def test_all_engines_agree_on_features(name: str, node_features: bool, width: int) -> None:
    layer, batch = make(name, input_size=width, node_features=node_features), batch_of(3, 4, share=False)
    assert batch.forest is not None
    feat = torch.randn(batch.num_nodes, width, dtype=torch.float64)
    expected = results(layer, batch, REFERENCE, feat)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch, engine, feat), expected, engine)
    gradient, inner = expected["gradient of feat"], torch.from_numpy(batch.forest.arity > 0)
    assert bool((gradient[inner] != 0).any()) == (node_features and width > 0)
    assert bool((gradient[~inner] != 0).any()) == (width > 0)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forest=forests(widest=3), share=st.booleans(), name=st.sampled_from(sorted(NETWORKS)))
def test_engines_agree_on_any_forest(forest: Forest, share: bool, name: str) -> None:
    layer = make(name)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)
    expected = results(layer, batch, REFERENCE)
    assert expected["root"].shape == (len(forest), 1, layer.hidden_size)
    for engine in ("auto", "autograd"):
        assert_same(results(layer, batch, engine), expected, f"{name}, {engine}")


Children = list[list[int]]


def dag_of(children: Children) -> TreeBatch:
    """The batch of a graph whose nodes may have several parents."""
    edges = [(child, node) for node, below in enumerate(children) for child in below]
    return TreeBatch(Schedule.from_edges(len(children), *zip(*edges, strict=True), allow_several_parents=True), None)


def unfolded(children: Children) -> tuple[Children, list[int]]:
    """The trees below the roots, each node once for each way that leads to it, and the node that each is a copy of."""
    below: Children = []
    original: list[int] = []

    def copy(node: int) -> int:
        own = [copy(child) for child in children[node]]
        below.append(own)
        original.append(node)
        return len(below) - 1

    inner = {child for each in children for child in each}
    for node in range(len(children)):
        if node not in inner:
            copy(node)
    return below, original


@every_network_of_features
def test_a_dag_has_the_states_and_summed_gradients_of_its_trees(network: TreeNetwork) -> None:
    generator = random.Random(1)
    children = [
        [generator.randrange(max(0, node - 6), node) for _ in range(generator.choice((0, 1, 2, 3)) if node > 1 else 0)]
        for node in range(20)
    ]
    trees, original = unfolded(children)
    assert len(trees) > len(children)
    feat = torch.randn(len(children), 2, dtype=torch.float64, requires_grad=True)
    copies = feat.detach()[original].requires_grad_()

    def run(batch: TreeBatch, feat: torch.Tensor, engine: Engine) -> tuple[Any, list[torch.Tensor]]:
        network.engine = engine
        states = network(batch, feat)
        inputs = [feat, *network.parameters()]
        return states, list(torch.autograd.grad(states.root.sin().sum(), inputs, materialize_grads=True))

    states, (of_copies, *expected) = run(dag_of(trees), copies, "autograd")
    summed = torch.zeros_like(feat).index_add_(0, torch.tensor(original), of_copies)
    for engine in ENGINES:
        found, gradients = run(dag_of(children), feat, engine)
        for name in states.names:
            torch.testing.assert_close(found[name][original], states[name], rtol=0, atol=1e-10, msg=f"{name}, {engine}")
        torch.testing.assert_close(gradients, [summed, *expected], rtol=0, atol=1e-10)


@every_network_of_features
def test_engines_agree_on_dags_of_wide_and_of_deep_nodes(network: TreeNetwork) -> None:
    for children in (
        [[], [], *[[0, 1]] * 30, list(range(2, 5)), [32, 31]],
        [[], *[[node, node] for node in range(40)]],  # 2 ** 40 ways from the root to the leaf
    ):
        feat = torch.randn(len(children), 2, dtype=torch.float64)
        expected = results(network, dag_of(children), "autograd", feat)
        for engine in ENGINES:
            assert_same(results(network, dag_of(children), engine, feat), expected, engine)


@pytest.mark.parametrize("network", networks()[1::2], ids=lambda network: type(network).__name__)
def test_backward_may_run_twice_when_the_graph_is_retained_and_once_if_not(network: TreeNetwork) -> None:
    for engine in ENGINES:
        network.engine = engine
        network.zero_grad()
        loss = network(batch_of()).root.square().sum()
        loss.backward(retain_graph=True)
        once = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        loss.backward()
        twice = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        torch.testing.assert_close(twice, [2 * each for each in once])
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@pytest.mark.parametrize("engine", ["auto", "autograd"])
@pytest.mark.parametrize("name", ["tree lstm", "tree cell", "stack lstm"])
def test_frozen_weights_get_no_gradient_and_change_no_other(name: str, engine: Engine) -> None:
    layer = make(name)
    everything = results(layer, batch_of(), engine)
    layer.cell.requires_grad_(False)  # type: ignore[attr-defined]
    found = results(layer, batch_of(), engine)
    gradient = "gradient of leaves.embedding.weight"
    torch.testing.assert_close(found[gradient], everything[gradient])
    assert all(parameter.grad is None for parameter in layer.cell.parameters())  # type: ignore[attr-defined]


@pytest.mark.parametrize("sort", ["TreeLSTM", "TreeCell", "of features", "of a user"])
def test_under_autocast_products_are_short_and_states_are_not(sort: str) -> None:
    torch.manual_seed(0)
    feat, share, batch = None, sort != "of features", batch_of(share=sort != "of features")
    if sort == "of a user":
        network: TreeNetwork = TreeNetwork(WeighedSum(3), vocabulary=VOCABULARY, embedding_size=3)
    elif share:
        network = {"TreeLSTM": TreeLSTM, "TreeCell": TreeCell}[sort](8, VOCABULARY)
    else:
        network = StackTreeLSTM(3, VOCABULARY, input_size=2, node_features=True)
        feat = torch.randn(batch.num_nodes, 2)
    exact = results(network, batch, "auto", feat)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = {engine: results(network, batch, engine, feat) for engine in ENGINES}
    for engine, values in found.items():
        assert values["h"].dtype == torch.float32
        assert not torch.equal(values["h"], exact["h"]), engine
        for name, value in values.items():
            # Rounding takes some entries across the step in the rectifier's derivative, on every engine alike.
            jumps = sort == "TreeCell" and name.startswith("gradient")
            expected = found[REFERENCE][name] if jumps else exact[name]
            largest = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(value, expected, rtol=0, atol=0.05 * largest, msg=f"{name}, {engine}")
    network.double()
    exact = results(network, batch, "auto", None if feat is None else feat.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(results(network, batch, "auto", None if feat is None else feat.double()), exact, "float64 stays")


@pytest.mark.parametrize("engine", ENGINES)
@every_layer
def test_nan_features_reach_the_ancestors_and_no_other_node(layer_class: Any, engine: Engine) -> None:
    trees = [Tree("f", [Tree("g", ["x"]), Tree("f", ["x", "x"])]), Tree("g", ["x"])]
    batch = TreeBatch.from_trees(trees, VOCABULARY, share_subtrees=False)
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64)
    feat[2] = float("nan")  # nodes in post-order: x g x x f f, x g
    states = layer_class(3, VOCABULARY, input_size=2, engine=engine).double()(batch, feat.requires_grad_())
    assert states.h.isnan().any(1).tolist() == [False, False, True, False, True, True, False, False]
    states.h[[0, 1, 3, 6, 7]].sum().backward()
    assert feat.grad is not None
    assert feat.grad[6:].isfinite().all()


@every_network
def test_an_empty_batch_has_empty_states_and_zero_gradients_and_a_leaf_is_its_tree(network: TreeNetwork) -> None:
    empty = TreeBatch.from_trees([], VOCABULARY, trees_per_example=2)
    leaves = TreeBatch.from_trees(["y", "x"], VOCABULARY)
    embedding = network.leaves.embedding.weight  # type: ignore[union-attr]
    expected = network.cell.leaf(embedding[[1, 0]], 0)["h"]
    if not isinstance(network.cell, WeighedSum) and not isinstance(network, TreeCell):
        torch.testing.assert_close(expected, embedding[[1, 0]])
    for engine in ENGINES:
        network.engine = engine
        torch.testing.assert_close(network(leaves).root[:, 0], expected)
        states = network(empty)
        assert states.root.shape == (0, 2, 3)
        assert all(len(states[name]) == 0 for name in states.names)
        network.zero_grad()
        states.root.sum().backward()
        assert all(parameter.grad is None or not parameter.grad.any() for parameter in network.parameters())


@every_network
@pytest.mark.parametrize("length", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_chain_runs_both_ways(network: TreeNetwork, length: int) -> None:
    batch = TreeBatch.from_trees([chain(length)], VOCABULARY)
    for engine in ("auto", "autograd"):
        network.engine = engine
        network.zero_grad()
        states = network(batch)
        states.h.sum().backward()
        assert states.h.shape == (length + 1, 3)
        assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in network.parameters())


def test_a_node_of_many_children_runs_where_children_are_summed() -> None:
    vocabulary = Vocabulary(["x"], [("f", 50_000)])
    layer = ChildSumTreeLSTM(2, vocabulary).double()
    batch = TreeBatch.from_trees([Tree("f", ["x"] * 50_000)], vocabulary)
    assert_same(results(layer, batch, "auto"), results(layer, batch, "autograd"), "")


@needs_dgl
def test_the_naive_engine_is_refused_on_another_device() -> None:
    layer, batch = TreeLSTM(2, VOCABULARY, engine="naive"), TreeBatch.from_trees(["x"], VOCABULARY)
    with fake_device(), pytest.raises(RecipeError, match=r"runs on a CPU only.*'auto'"):
        layer.to(DEVICE)(batch)


@pytest.mark.parametrize(("former", "present"), [("fused", "auto"), ("recursive", "autograd")])
def test_former_names_of_engines_stand_for_present_ones(former: Any, present: str) -> None:
    layer = TreeLSTM(3, VOCABULARY, engine=former)
    assert layer.engine == layer.options["engine"] == present
    layer.engine = "naive"
    layer.engine = former
    assert layer.engine == layer.options["engine"] == present
    assert TreeNetwork(layer.cell, vocabulary=VOCABULARY, embedding_size=3, engine=former).engine == present
    assert OrderedMemory(4, VOCABULARY, engine="stepwise").options["engine"] == "naive"  # type: ignore[arg-type]


@needs_compiler
@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("stack rnn own", lambda layer: None, "cannot be printed: different positions of a state meet.*"),
        ("tree rnn", lambda layer: layer.bfloat16(), "float32 or in float64, not in bfloat16"),
        ("tree rnn", lambda layer: layer.cell.double(), "not in float32 and float64"),
        ("tree rnn", lambda layer: layer.cell.register_forward_hook(lambda *_: None), "forward hooks"),
    ],
)
def test_the_native_engine_says_why_it_cannot_run(name: str, change: Callable[[Any], Any], reason: str) -> None:
    layer = make(name).float()
    change(layer)
    layer.engine = "native"
    with pytest.raises(RecipeError, match=f"engine 'native' cannot run here: .*{reason}.*; .* 'auto' or 'autograd'"):
        layer(batch_of(2, 2))
    if "float64" not in reason or "bfloat16" in reason:  # no engine runs two precisions
        layer.engine = "auto"
        layer(batch_of(2, 2))


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
    with surroundings(), pytest.raises(RecipeError, match=reason):
        layer(batch_of())
    layer(batch_of())
