from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from tree_networks import PlainMean, small_networks
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, TreeLSTM, TreeNetwork
from treemem.ops import State
from treemem.schedule.parts import cut_schedule
from treemem.schedule.schedule import GIVEN, Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

FOREST = random_forest(5, 12, 30, widest=3)


def results(
    network: TreeNetwork, batch: TreeBatch, feat: torch.Tensor | None = None, **options: object
) -> dict[str, torch.Tensor]:
    """The encodings, and the gradient of every parameter and feature."""
    network.zero_grad()
    own = None if feat is None else feat.clone().requires_grad_()
    root = network(batch, own, **options).root
    (root * torch.cos(torch.arange(root.numel(), dtype=root.dtype)).view(root.shape)).sum().backward()
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    found = {"root": root.detach(), "feat": None if own is None else own.grad, **found}
    return {name: torch.zeros(()) if value is None else value.clone() for name, value in found.items()}


@pytest.mark.parametrize("network", small_networks(), ids=lambda network: type(network).__name__)
@pytest.mark.parametrize(("rows_at_once", "share_subtrees"), [(1, True), (7, False), (10_000, True)])
def test_parts_give_the_encodings_and_gradients_of_the_whole(
    network: TreeNetwork, rows_at_once: int, share_subtrees: bool
) -> None:
    batch = TreeBatch.from_forest(FOREST, VOCABULARY, trees_per_example=2, share_subtrees=share_subtrees)
    expected = results(network, batch)
    assert_same(results(network, batch, keep="roots", rows_at_once=rows_at_once), expected, "")
    with torch.no_grad():
        found = network(batch, keep="roots", rows_at_once=rows_at_once).root
    torch.testing.assert_close(found, expected["root"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layer_class", "node_features"), [(TreeLSTM, True), (ChildSumTreeLSTM, False)])
def test_gradients_reach_features_too(layer_class: type[TreeLSTM], node_features: bool) -> None:
    torch.manual_seed(1)
    layer = layer_class(3, VOCABULARY, input_size=2, node_features=node_features).double()
    batch = TreeBatch.from_forest(FOREST, VOCABULARY, share_subtrees=False)
    feat = torch.randn(batch.num_nodes, 2, dtype=torch.float64)
    assert_same(results(layer, batch, feat, keep="roots", rows_at_once=9), results(layer, batch, feat), "")


def test_a_schedule_whose_nodes_are_in_any_order_runs_in_parts_too() -> None:
    torch.manual_seed(0)
    source, target = [4, 1, 3, 0, 2, 6], [5, 5, 4, 4, 1, 3]  # children after their parents, and before
    schedule = Schedule.from_edges(7, source, target)
    layer = ChildSumTreeLSTM(3, input_size=2).double()
    batch = TreeBatch(schedule, None)
    feat = torch.randn(7, 2, dtype=torch.float64)
    expected = results(layer, batch, feat)
    for rows_at_once in (1, 2):
        assert_same(results(layer, batch, feat, keep="roots", rows_at_once=rows_at_once), expected, "")


def test_trees_of_one_node_and_batches_of_none_have_encodings() -> None:
    layer = TreeLSTM(3, VOCABULARY).double()
    batches = [[], [Tree("x")], [Tree("y"), Tree("g", [Tree("x")]), Tree("x"), Tree("g", [Tree("y")])]]
    for trees in batches:
        batch = TreeBatch.from_trees(trees, VOCABULARY)
        found = layer(batch, keep="roots", rows_at_once=1).root
        torch.testing.assert_close(found, layer(batch).root)


def test_parts_hand_on_little_where_trees_are_in_post_order() -> None:
    def full(height: int) -> Tree:
        tree = Tree("x")
        for _ in range(height):
            tree = Tree("add", [tree, tree])
        return tree

    for tree, most in ((full(10), 10), (chain(1_000), 1)):
        batch = TreeBatch.from_trees([tree], VOCABULARY, share_subtrees=False)
        parts = cut_schedule(batch.schedule, 100).parts
        assert len(parts) == -(-(batch.schedule.num_rows - batch.schedule.num_leaf_rows) // 100)
        assert all(len(part.handed_on) <= most for part in parts)
        for part in parts:
            given = sum(len(places) for _, places in part.given)
            segments = [segment for level in part.schedule.levels for segment in level.segments]
            assert sum(segment.end - segment.begin for segment in segments if segment.kind == GIVEN) == given
            assert sum(segment.end - segment.begin for segment in segments if segment.arity) <= 100


def test_dropout_is_the_same_when_a_part_is_run_once_more() -> None:
    for layer_class in (TreeLSTM, StackTreeLSTM):
        torch.manual_seed(0)
        layer = layer_class(3, VOCABULARY, dropout=0.4).double()
        batch = TreeBatch.from_forest(FOREST, VOCABULARY)
        weight = layer.leaves.embedding.weight  # type: ignore[union-attr]
        direction = torch.randn_like(weight)

        def loss(layer: TreeNetwork = layer, batch: TreeBatch = batch) -> torch.Tensor:
            torch.manual_seed(4)
            return layer(batch, keep="roots", rows_at_once=8).root.square().sum()

        loss().backward()
        slope = (weight.grad * direction).sum()
        after = torch.rand(1)
        with torch.no_grad():
            weight.add_(direction, alpha=1e-6)
            above = loss()
            weight.add_(direction, alpha=-2e-6)
            below = loss()
        torch.testing.assert_close((above - below) / 2e-6, slope, rtol=1e-5, atol=1e-8)
        assert torch.equal(torch.rand(1), after)


def test_under_autocast_parts_are_run_once_more_in_the_same_precision() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(8, VOCABULARY)
    batch = TreeBatch.from_forest(FOREST, VOCABULARY)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = layer(batch).root
        found = layer(batch, keep="roots", rows_at_once=9).root
    weights = [layer.leaves.embedding.weight, layer.cell.maps.of(2).weight]  # type: ignore[union-attr]
    gradients = [torch.autograd.grad(root.sum(), weights) for root in (found, expected)]
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))


def test_a_deep_chain_runs_in_parts_both_ways() -> None:
    layer = TreeLSTM(2, VOCABULARY).double()
    batch = TreeBatch.from_trees([chain(400)], VOCABULARY)
    assert_same(results(layer, batch, keep="roots", rows_at_once=150), results(layer, batch), "")


def test_a_learned_tensor_that_is_no_parameter_has_its_gradient_in_parts_too() -> None:
    class Scaled(PlainMean):
        outside = torch.ones(3, dtype=torch.float64, requires_grad=True)

        def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
            states = super().forward(children, x, kind)
            return {**states, "h": states["h"] * self.outside}

    torch.manual_seed(0)
    network = TreeNetwork(Scaled(), vocabulary=VOCABULARY, embedding_size=3).double()
    batch = TreeBatch.from_forest(FOREST, VOCABULARY)
    found, expected = (
        torch.autograd.grad(network(batch, **options).root.sum(), Scaled.outside)
        for options in ({"keep": "roots", "rows_at_once": 7}, {})
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("network", small_networks()[1::3], ids=lambda network: type(network).__name__)
def test_second_derivatives_in_parts_are_those_of_the_whole(network: TreeNetwork) -> None:
    batch = TreeBatch.from_forest(FOREST, VOCABULARY)
    embedding = next(iter(network.leaves.embedding.parameters()))  # type: ignore[union-attr]
    network.engine = "autograd"
    found = []
    for options in ({"keep": "roots", "rows_at_once": 7}, {}):
        root = network(batch, **options).root
        (gradient,) = torch.autograd.grad(root.square().sum(), embedding, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [*network.parameters()], allow_unused=True))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("in_place", [True, False])
def test_weights_that_change_before_the_backward_pass_are_refused(in_place: bool) -> None:
    layer = TreeLSTM(2, VOCABULARY)
    root = layer(TreeBatch.from_forest(FOREST, VOCABULARY), keep="roots", rows_at_once=5).root
    embedding = layer.leaves.embedding  # type: ignore[union-attr]
    if in_place:
        with torch.no_grad():
            embedding.weight.mul_(2)
    else:
        embedding.weight = torch.nn.Parameter(torch.zeros(4, 2))
    with pytest.raises(RuntimeError, match="weights have changed since"):
        root.sum().backward()


def test_what_was_not_kept_is_not_there() -> None:
    states = TreeLSTM(2, VOCABULARY)(TreeBatch.from_forest(FOREST, VOCABULARY), keep="roots", rows_at_once=5)
    assert repr(states) == "<TreeStates h, c of 12 roots>"
    with pytest.raises(GraphError, match="only the encodings were kept"):
        states["h"]


@pytest.mark.parametrize(
    ("layer", "run", "words"),
    [
        ({}, {"keep": "root"}, "keep='root'"),
        ({}, {"keep": "roots", "rows_at_once": 0}, "rows_at_once must be at least 1"),
        ({"direction": "both"}, {"keep": "roots"}, "a layer that goes down"),
        ({"engine": "naive"}, {"keep": "roots"}, "engine 'naive' keeps all states"),
    ],
)
def test_what_cannot_be_done_is_refused(layer: dict[str, Any], run: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        TreeLSTM(2, VOCABULARY, **layer)(TreeBatch.from_forest(FOREST, VOCABULARY), **run)
