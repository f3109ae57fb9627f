"""What holds of every engine beside its numbers."""

from __future__ import annotations

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.engines.propagate import Engine
from treemem.nn import (
    ChildSumTreeLSTM,
    StackTreeLSTM,
    StackTreeRNN,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
)
from treemem.ops import State
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

LAYERS = [TreeRNN, TreeLSTM, ChildSumTreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM]


@pytest.fixture
def batch() -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12, widest=3), VOCABULARY)


class PlainSum(torch.nn.Module):
    """A user's cell."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(children["h"].sum(1) * self.weight)}


def networks() -> list[TreeNetwork]:
    torch.manual_seed(0)
    layers: list[TreeNetwork] = [layer(3, VOCABULARY) for layer in LAYERS]
    return [*layers, TreeNetwork(PlainSum(), vocabulary=VOCABULARY, embedding_size=3)]


@pytest.mark.parametrize("network", networks()[1::2], ids=lambda network: type(network).__name__)
def test_backward_may_run_twice_when_the_graph_is_retained_and_once_if_not(
    network: TreeNetwork, batch: TreeBatch
) -> None:
    for engine in ENGINES:
        network.engine = engine
        network.zero_grad()
        loss = network(batch).root.square().sum()
        loss.backward(retain_graph=True)
        once = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        loss.backward()
        twice = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        for first, second in zip(once, twice, strict=True):
            torch.testing.assert_close(second, 2 * first)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


@pytest.mark.parametrize("engine", ["auto", "autograd"])
@pytest.mark.parametrize("layer_class", [TreeLSTM, TreeCell, StackTreeLSTM])
def test_frozen_weights_get_no_gradient_and_change_no_other(
    layer_class: type[TreeLayer], engine: Engine, batch: TreeBatch
) -> None:
    torch.manual_seed(0)
    layer = layer_class(3, VOCABULARY).double()
    everything = results(layer, batch, engine)
    for parameter in layer.cell.parameters():
        parameter.requires_grad_(False)
    layer.zero_grad()
    found = results(layer, batch, engine)
    name = "gradient of leaves.embedding.weight"
    torch.testing.assert_close(found[name], everything[name])
    assert all(parameter.grad is None for parameter in layer.cell.parameters())


@pytest.mark.parametrize("layer_class", [TreeLSTM, TreeCell])
def test_under_autocast_products_are_short_and_states_are_not(layer_class: type[TreeLayer], batch: TreeBatch) -> None:
    torch.manual_seed(0)
    layer = layer_class(8, VOCABULARY)
    exact = results(layer, batch, "auto")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = {engine: results(layer, batch, engine) for engine in ENGINES}
    for engine, values in found.items():
        assert values["h"].dtype == torch.float32
        assert not torch.equal(values["h"], exact["h"]), engine
        for name, value in values.items():
            # Rounding takes some entries across the step in the rectifier's derivative, on every engine alike.
            jumps = layer_class is TreeCell and name.startswith("gradient")
            expected = found[REFERENCE][name] if jumps else exact[name]
            largest = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(value, expected, rtol=0, atol=0.05 * largest, msg=f"{name}, {engine}")


def test_under_autocast_a_users_states_stay_in_float32(batch: TreeBatch) -> None:
    class Linear(PlainSum):
        def __init__(self) -> None:
            super().__init__()
            self.map = torch.nn.Linear(3, 3)

        def leaf(self, x: torch.Tensor, kind: int) -> State:
            return {"h": self.map(x)}

        def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
            return {"h": self.map(children["h"].mean(1))}

    network = TreeNetwork(Linear(), vocabulary=VOCABULARY, embedding_size=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = [results(network, batch, engine) for engine in ENGINES]
    for values in found:
        assert values["h"].dtype == torch.float32
        torch.testing.assert_close(values["root"], found[0]["root"], rtol=0, atol=0.02)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layer_class", LAYERS)
def test_nan_features_reach_the_ancestors_and_no_other_node(layer_class: type[TreeLayer], engine: Engine) -> None:
    x = Tree("x")
    trees = [Tree("f", [Tree("g", [x]), Tree("f", [x, x])]), Tree("g", [x])]
    batch = TreeBatch.from_trees(trees, VOCABULARY, share_subtrees=False)
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64)
    feat[2] = float("nan")  # nodes in post-order: x g x x f f, x g
    states = layer_class(3, VOCABULARY, input_size=2, engine=engine).double()(batch, feat.requires_grad_())
    assert states.h.isnan().any(1).tolist() == [False, False, True, False, True, True, False, False]
    states.h[[0, 1, 3, 6, 7]].sum().backward()
    assert feat.grad is not None
    assert feat.grad[6:].isfinite().all()


@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_an_empty_batch_has_empty_states_and_zero_gradients(network: TreeNetwork) -> None:
    batch = TreeBatch.from_trees([], VOCABULARY, trees_per_example=2)
    for engine in ENGINES:
        network.engine = engine  # type: ignore[assignment]
        states = network(batch)
        assert states.root.shape == (0, 2, 3)
        assert all(len(states[name]) == 0 for name in states.names)
        network.zero_grad()
        states.root.sum().backward()
        assert all(parameter.grad is None or not parameter.grad.any() for parameter in network.parameters())


@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_trees_of_one_node_are_their_leaves(network: TreeNetwork) -> None:
    batch = TreeBatch.from_trees([Tree("y"), Tree("x")], VOCABULARY)
    embedding = network.leaves.embedding.weight  # type: ignore[union-attr]
    expected = network.cell.leaf(embedding[[1, 0]], 0)["h"]
    if not isinstance(network, TreeCell):
        torch.testing.assert_close(expected, embedding[[1, 0]])
    for engine in ENGINES:
        network.engine = engine  # type: ignore[assignment]
        torch.testing.assert_close(network(batch).root[:, 0], expected)


@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_a_chain_runs_both_ways(network: TreeNetwork) -> None:
    length, batch = 300, TreeBatch.from_trees([chain(300)], VOCABULARY)
    for engine in ("auto", "autograd"):
        network.engine = engine
        network.zero_grad()
        states = network(batch)
        states.h.sum().backward()
        assert states.h.shape == (length + 1, 3)
        for parameter in network.parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_a_chain_of_100000_nodes_runs_both_ways(network: TreeNetwork) -> None:
    states = network(TreeBatch.from_trees([chain(100_000)], VOCABULARY))
    states.h.sum().backward()
    assert states.h.shape == (100_001, 3)


def test_a_node_of_many_children_runs_where_children_are_summed() -> None:
    vocabulary = Vocabulary(["x"], [("f", 50_000)])
    batch = TreeBatch.from_trees([Tree("f", [Tree("x")] * 50_000)], vocabulary)
    layer = ChildSumTreeLSTM(2, vocabulary).double()
    values = results(layer, batch, "auto")
    assert values["root"].isfinite().all()
    small = TreeBatch.from_trees([Tree("f", [Tree("x")] * 3)], Vocabulary(["x"], [("f", 3)]))
    assert_same(
        results(_with_vocabulary(layer, small), small, "auto"),
        results(_with_vocabulary(layer, small), small, REFERENCE),
        "",
    )


def _with_vocabulary(layer: ChildSumTreeLSTM, batch: TreeBatch) -> ChildSumTreeLSTM:
    other = ChildSumTreeLSTM(layer.hidden_size, batch.vocabulary).double()
    other.load_state_dict(layer.state_dict())
    return other
