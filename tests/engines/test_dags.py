"""Graphs whose nodes may have several parents: what holds of the tree that they unfold into holds of them."""

from __future__ import annotations

import random

import pytest
import torch
from engine_parity import ENGINES, HAS_DGL, NO_DGL, assert_same, results

from treemem.dgl_import import import_dgl
from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, StackTreeRNN, TreeCell, TreeLSTM, TreeNetwork, TreeRNN
from treemem.ops import State
from treemem.schedule.tree_batch import TreeBatch

if not HAS_DGL:
    pytest.skip(NO_DGL, allow_module_level=True)
dgl = import_dgl()

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

LAYERS = [TreeRNN, TreeLSTM, ChildSumTreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM]
ARITIES = (1, 2, 3)
Children = list[list[int]]


class WeighedSum(torch.nn.Module):
    """A user's cell that tells the children's positions apart."""

    def __init__(self) -> None:
        super().__init__()
        self.map = torch.nn.Linear(2, 3)
        self.weight = torch.nn.Parameter(torch.randn(3, 3, 3))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": self.map(x)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        weight = self.weight[: children["h"].shape[1]]
        return {"h": torch.tanh(torch.einsum("mki,kij->mj", children["h"], weight) + self.map(x))}


def networks() -> list[TreeNetwork]:
    torch.manual_seed(0)
    made: list[TreeNetwork] = []
    for layer in LAYERS:
        arities = {} if layer is ChildSumTreeLSTM else {"arities": ARITIES}
        made.append(layer(3, input_size=2, node_features=True, **arities))
    return [network.double() for network in [*made, TreeNetwork(WeighedSum(), input_size=2, node_features=True)]]


def random_dag(seed: int, size: int) -> Children:
    """The children of every node, all of smaller numbers; a child may occur twice, and nodes may be left alone."""
    generator = random.Random(seed)
    return [
        [generator.randrange(max(0, node - 6), node) for _ in range(generator.choice((0, *ARITIES)) if node > 1 else 0)]
        for node in range(size)
    ]


def graph_of(children: Children, seed: int = 0) -> dgl.DGLGraph:
    """The graph with its edges in a random order."""
    edges = [(child, node, place) for node, below in enumerate(children) for place, child in enumerate(below)]
    random.Random(seed).shuffle(edges)
    source, target, position = zip(*edges, strict=True)
    graph = dgl.graph((list(source), list(target)), num_nodes=len(children))
    graph.edata["position"] = torch.tensor(position)
    return graph


def unfolded(children: Children) -> tuple[Children, list[int], list[int]]:
    """The trees below the roots, each node once for each way that leads to it.

    Returns:
        The children of each copy, the node that it is a copy of, and the copies that are roots, in the order of nodes.
    """
    below: Children = []
    original: list[int] = []

    def copy(node: int) -> int:
        own = [copy(child) for child in children[node]]
        below.append(own)
        original.append(node)
        return len(below) - 1

    inner = {child for each in children for child in each}
    roots = [copy(node) for node in range(len(children)) if node not in inner]
    return below, original, roots


@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_a_dag_has_the_states_and_summed_gradients_of_its_trees(network: TreeNetwork) -> None:
    children = random_dag(1, 20)
    trees, original, roots = unfolded(children)
    assert len(trees) > len(children)
    dag = TreeBatch.from_dgl(graph_of(children), allow_several_parents=True)
    tree_batch = TreeBatch.from_dgl(graph_of(trees))
    assert dag.num_trees == tree_batch.num_trees == len(roots)
    feat = torch.randn(len(children), 2, dtype=torch.float64, requires_grad=True)
    copies = feat.detach()[original].requires_grad_()

    network.engine = "autograd"
    network.zero_grad()
    states = network(tree_batch, copies)
    states.root.sin().sum().backward()
    expected = {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}
    expected = {name: value.clone() for name, value in expected.items()}
    summed = torch.zeros_like(feat).index_add_(0, torch.tensor(original), copies.grad)
    for engine in ENGINES:
        network.engine = engine
        network.zero_grad()
        feat.grad = None
        found = network(dag, feat)
        found.root.sin().sum().backward()
        for name in states.names:
            torch.testing.assert_close(found[name][original], states[name], rtol=0, atol=1e-10, msg=f"{name}, {engine}")
        torch.testing.assert_close(feat.grad, summed, rtol=0, atol=1e-10, msg=engine)
        for name, value in expected.items():
            torch.testing.assert_close(
                network.get_parameter(name).grad, value, rtol=0, atol=1e-10, msg=f"{name}, {engine}"
            )


@pytest.mark.parametrize("network", networks(), ids=lambda network: type(network).__name__)
def test_all_engines_agree_on_dags_of_shallow_and_of_deep_nodes(network: TreeNetwork) -> None:
    wide = [[], [], *[[0, 1]] * 30, list(range(2, 5)), [32, 31]]
    for children in (random_dag(3, 60), wide, [[], *[[node, node] for node in range(12)]]):
        batch = TreeBatch.from_dgl(graph_of(children), allow_several_parents=True)
        feat = torch.randn(len(children), 2, dtype=torch.float64)
        expected = results(network, batch, "naive", feat)
        for engine in ("auto", "autograd"):
            assert_same(results(network, batch, engine, feat), expected, engine)


def test_a_dag_costs_its_nodes_and_not_its_paths() -> None:
    ladder = [[], *[[node, node] for node in range(200)]]  # 2 ** 200 ways from the root to the leaf
    batch = TreeBatch.from_dgl(graph_of(ladder), allow_several_parents=True)
    torch.manual_seed(0)
    layer = TreeRNN(3, input_size=2, activation="tanh").double()
    feat = torch.randn(len(ladder), 2, dtype=torch.float64, requires_grad=True)
    layer(batch, feat).root.sum().backward()
    assert feat.grad is not None
    assert feat.grad.isfinite().all()
