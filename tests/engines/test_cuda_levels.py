"""Trees in Triton kernels, which run in the interpreter on a fake device: equal to the definition, or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from engine_parity import assert_same, results
from fake_device import DEVICE, HAS_INTERPRETER, fake_device
from torch import Tensor, nn
from torch.autograd import forward_ad
from tree_networks import make
from tree_strategies import VOCABULARY

from treemem import Forest, RecipeError, TreeBatch
from treemem.engines.affine import Affine
from treemem.engines.cell import State
from treemem.engines.cuda import plan, run
from treemem.engines.cuda.choice import cuda_kernels
from treemem.engines.cuda.launcher import product_precision
from treemem.networks.parsers.disjoint_tree_lstm.run import compose_levels
from treemem.nn import TreeLSTM, TreeNetwork
from treemem.schedule.schedule import Schedule

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

FOREST = Forest.from_trees(["(max (f x) (add x (g y)) 1)", "x", "(add (add x y) (add x y))", "(g (g (g (f y))))"])


SMALL = Forest.from_trees(["(add (f x) (add x y))"])


def batch(forest: Forest = SMALL, share: bool = True) -> TreeBatch:
    return TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)


def on_device(
    network: TreeNetwork, trees: TreeBatch, feat: Tensor | None = None, engine: Any = "cuda"
) -> dict[str, Tensor]:
    """Outputs and gradients of the kernels."""
    with fake_device():
        there = None if feat is None else feat.to(DEVICE)
        try:
            found = results(network.to(DEVICE), trees.to(DEVICE), engine, there)
            return {name: value.cpu() for name, value in found.items()}
        finally:
            network.cpu()


class TwoProducts(nn.Module):
    """A user's cell: a product of what another product gave, a reduction, a running sum and a power."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.rand(3))

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": torch.tanh(x), "size": x.new_ones(len(x), 1)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        total = torch.cat([children["h"].sum(1), x], 1)  # type: ignore[list-item]
        hidden = self.second(torch.relu(self.first(total)))
        share = torch.softmax(hidden, 1).cumsum(1) * self.scale
        size = children["size"].sum(1) + 1
        return {"h": torch.tanh(hidden) * share / size**0.5, "size": size}


class Sum(nn.Module):
    """A user's cell without products."""

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        assert x is not None
        return {"h": x + children["h"].sum(1)}


@pytest.mark.parametrize("size", [3, 66])
def test_cells_without_products_run(size: int) -> None:
    network = TreeNetwork(Sum(), vocabulary=VOCABULARY, embedding_size=size, node_features=True).double()
    assert_same(on_device(network, batch()), results(network, batch(), "autograd"), "")


def own_network() -> TreeNetwork:
    torch.manual_seed(0)
    return TreeNetwork(TwoProducts(), vocabulary=VOCABULARY, embedding_size=3, node_features=True).double()


OF_LIBRARY = (
    *("tree rnn elu both ways", "tree lstm", "child sum", "tree cell", "stack rnn no-op"),
    *("stack lstm normalize no-op", "stack lstm scalar"),
)
CELLS: dict[str, Callable[[], TreeNetwork]] = {name: partial(make, name) for name in OF_LIBRARY}
CELLS["own cell"] = own_network


@pytest.mark.parametrize("name", CELLS)
def test_outputs_and_gradients_are_those_of_the_definition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_FEWEST_ROWS", 2)  # so that gradients are sums of several parts
    monkeypatch.setattr(plan, "_FEWEST_EDGES", 2)
    network = CELLS[name]()
    assert_same(on_device(network, batch(FOREST)), results(network, batch(FOREST), "autograd"), name)


def test_the_order_of_sums_is_the_same_each_time_and_batches_that_share_no_rows_agree() -> None:
    network = make("tree lstm")
    found, again = (on_device(network, batch(share=False)) for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in found.items())
    assert_same(found, results(network, batch(share=False), "autograd"), "")


def test_float32_agrees_and_auto_takes_the_kernels_if_it_may() -> None:
    network = make("tree lstm").float()
    with cuda_kernels(True), fake_device() as device:
        results(network.to(DEVICE), batch(FOREST).to(DEVICE), "cuda")
        device.launches = 0
        found = results(network, batch(FOREST).to(DEVICE), "auto")
        with_kernels, device.launches = device.launches, 0
        results(network, batch(FOREST).to(DEVICE), "autograd")
        assert with_kernels < device.launches / 2
        found = {name: value.cpu() for name, value in found.items()}
        network.cpu()
    assert_same(found, results(network, batch(FOREST), "autograd"), "")


@pytest.mark.parametrize(("name", "width"), [("tree lstm", 2), ("child sum", 3)])
def test_features_of_nodes_are_read_and_get_gradients(name: str, width: int) -> None:
    network, trees = make(name, input_size=width, node_features=True), batch(share=False)
    feat = torch.randn(trees.num_nodes, width, dtype=torch.float64)
    assert_same(on_device(network, trees, feat), results(network, trees, "autograd", feat), name)


def test_rows_with_many_parents_add_up_all_gradients() -> None:
    children: list[list[int]] = [[], [], *[[0, 1]] * 40, *[[2, 3]] * 3, [44, 43]]
    edges = [(child, node) for node, below in enumerate(children) for child in below]
    graph = Schedule.from_edges(len(children), *zip(*edges, strict=True), allow_several_parents=True)
    trees = TreeBatch(graph, None)
    network = TreeLSTM(3, input_size=2, node_features=True, arities=(2,)).double()
    feat = torch.randn(trees.num_nodes, 2, dtype=torch.float64)
    assert_same(on_device(network, trees, feat), results(network, trees, "autograd", feat), "")


@pytest.mark.parametrize(("name", "size"), [("tree lstm", 3), ("tree cell", 3), ("tree lstm", 65)])
def test_gradients_with_dropout_are_those_of_the_same_factors(name: str, size: int) -> None:
    """The derivative along a direction is the difference of losses, with equal seeds."""
    network, step = make(name, hidden_size=size, dropout=0.4), 1e-6
    direction = [torch.randn_like(parameter) for parameter in network.parameters()]

    def loss(shift: float) -> Tensor:
        with torch.no_grad():
            for parameter, along in zip(network.parameters(), direction, strict=True):
                parameter += shift * along
        torch.manual_seed(1)
        with fake_device():
            network.zero_grad()
            network.to(DEVICE)
            value = network(batch().to(DEVICE)).root.sin().sum()
            value.backward()
            value = value.detach().cpu()
            network.cpu()
        return value

    loss(0.0)
    pairs = zip(network.parameters(), direction, strict=True)
    slope = sum((parameter.grad * along).sum() for parameter, along in pairs if parameter.grad is not None)
    difference = (loss(step) - loss(-2 * step)) / (2 * step)
    torch.testing.assert_close(torch.as_tensor(slope), difference, rtol=1e-6, atol=1e-8)


def test_frozen_weights_get_no_gradient_and_change_no_other() -> None:
    network = make("tree lstm")
    everything = on_device(network, batch())
    network.cell.requires_grad_(False)  # type: ignore[operator]
    found = on_device(network, batch())
    gradient = "gradient of leaves.embedding.weight"
    torch.testing.assert_close(found[gradient], everything[gradient])
    assert not any(value.any() for name, value in found.items() if name.startswith("gradient of cell"))


def test_parts_that_start_from_given_rows_give_the_same_roots() -> None:
    network = make("tree lstm")
    expected = network(batch(share=False)).root
    with fake_device():
        network.to(DEVICE)
        network.engine = "cuda"
        found = network(batch(share=False), keep="roots", rows_at_once=3).root.cpu()
        network.cpu()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_products_are_as_exact_as_torch_is_told() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        found = []
        for name in ("highest", "high"):
            torch.set_float32_matmul_precision(name)
            found.append(product_precision(torch.float32))
    finally:
        torch.set_float32_matmul_precision(before)
    assert found == ["tf32x3", "tf32"]
    assert product_precision(torch.float64) == "ieee"


def test_leaves_alone_and_empty_batches_run() -> None:
    network = make("tree rnn")
    for trees in ([], ["x", "y"]):
        few = TreeBatch.from_trees(trees, VOCABULARY)
        assert_same(on_device(network, few), results(network, few, "autograd"), "")


def test_a_retained_graph_gives_the_same_gradients_again_and_none_of_second_order() -> None:
    network = make("tree rnn")
    network.engine = "cuda"
    with fake_device():
        network.to(DEVICE)
        loss = network(batch().to(DEVICE)).root.square().sum()
        weights = list(network.cell.parameters())
        once = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        twice = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
        for first, second in zip(once, twice, strict=True):
            assert first is None or torch.equal(first.cpu(), second.detach().cpu())
        with pytest.raises(RuntimeError, match="no second derivative; set the layer's engine to 'autograd'"):
            torch.autograd.grad(sum(value.sum() for value in twice if value is not None), weights, allow_unused=True)


@pytest.mark.parametrize("name", ["tree cell", "stack rnn no-op"])
def test_wide_states_that_go_through_memory_give_the_same_gradients(name: str) -> None:
    network = make(name, hidden_size=65)
    assert_same(on_device(network, batch()), results(network, batch(), "autograd"), name)


def test_wide_states_with_features_give_the_same_gradients() -> None:
    more_rows_than_a_block = Forest.from_trees(["(add (f x) (add x y))", *["(add x y)"] * 9])
    network = make("child sum", hidden_size=66, input_size=2, node_features=True)
    trees = batch(more_rows_than_a_block, share=False)
    feat = torch.randn(trees.num_nodes, 2, dtype=torch.float64)
    assert_same(on_device(network, trees, feat), results(network, trees, "autograd", feat), "")


def test_states_that_no_kernel_takes_are_refused_and_run_under_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WIDEST", 64)
    network = make("tree rnn", hidden_size=65)
    with pytest.raises(RecipeError, match=r"'cuda' cannot run here: .* up to 64 numbers, .* 65; .* 'autograd'"):
        on_device(network, batch())
    with cuda_kernels(True):
        assert_same(on_device(network, batch(), engine="auto"), results(network, batch(), "autograd"), "")


@pytest.mark.parametrize(
    ("surroundings", "change", "reason"),
    [
        (nullcontext, lambda network: network, "run on CUDA, and the layer is on cpu"),
        (nullcontext, lambda network: network.to(DEVICE).bfloat16(), "in float32 or in float64, not in bfloat16"),
        (forward_ad.dual_level, lambda network: network.to(DEVICE), "forward-mode AD"),
    ],
)
def test_the_engine_says_where_it_does_not_run(surroundings: Any, change: Any, reason: str) -> None:
    network = make("tree rnn")
    network.engine = "cuda"
    with fake_device(), surroundings():
        changed = change(network)
        with pytest.raises(RecipeError, match=f"engine 'cuda' cannot run here: .*{reason}"):
            changed(batch().to(next(network.parameters()).device))


def test_kernels_are_chosen_only_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def launches() -> int:
        with fake_device(runs_kernels=False) as device:
            make("tree rnn").to(DEVICE)(batch().to(DEVICE))
        return device.launches

    plain = launches()
    with cuda_kernels(True):
        launches()
        few = launches()
    assert few < plain
    monkeypatch.setenv("TREEMEM_CUDA_KERNELS", "1")
    assert launches() == few
    with cuda_kernels(False):
        assert launches() == plain
    monkeypatch.setenv("TREEMEM_CUDA_KERNELS", "yes")
    with pytest.raises(RecipeError, match="TREEMEM_CUDA_KERNELS='yes' is none of 0, 1"):
        launches()


@pytest.mark.parametrize("kernels", [True, False])
def test_children_that_only_the_device_knows_need_no_wait(kernels: bool) -> None:
    torch.manual_seed(0)
    child = torch.tensor([0, 1, 1, 2, 2, 2, 3, 4, 0, 5, 6, 4, 7, 7])  # row 2 has 3 parents, row 7 the same child twice
    given = {"leaves": torch.randn(3, 8), "weight": torch.randn(20, 8), "bias": torch.randn(20)}
    given = {name: value.double() for name, value in given.items()}

    def outcome(tensors: dict[str, Tensor], child: Tensor) -> dict[str, Tensor]:
        leaves, weight, bias = (tensor.requires_grad_() for tensor in tensors.values())
        schedule = Schedule.from_steps(3, [3, 2, 2], child, child[-1:])
        states = compose_levels(leaves, schedule, Affine(weight, bias))
        sum((value * value).cos().sum() for value in states.values()).backward()
        gradients = {name: tensor.grad for name, tensor in tensors.items()}
        return {name: value.detach() for name, value in {**states, **gradients}.items()}

    expected = outcome({name: value.clone() for name, value in given.items()}, child)
    with cuda_kernels(kernels), fake_device() as device:
        there = {name: value.to(DEVICE) for name, value in given.items()}
        child_there = child.to(DEVICE)
        device.waits.clear()
        found = outcome(there, child_there)
        assert not device.waits
        found = {name: value.cpu() for name, value in found.items()}
    assert_same(found, expected, "")
