"""Passes from the roots to the leaves, alone and after the way up."""

from __future__ import annotations

import math

import pytest
import torch
from engine_parity import ENGINES, HAS_DGL, REFERENCE, assert_same, needs_dgl, results
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.dgl_import import import_dgl
from treemem.errors import CellError, GraphError, RecipeError
from treemem.nn import ClassifierHead, EqualityHead, TreeLSTM, TreeNetwork, TreeRNN
from treemem.ops import Direction, State
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

dgl = import_dgl() if HAS_DGL else None

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")


class Up(torch.nn.Module):
    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(children["h"].sum(1))}


class Down(torch.nn.Module):
    """A user's downward cell that knows kinds and positions, and counts the nodes on the way."""

    def __init__(self, size: int, num_kinds: int) -> None:
        super().__init__()
        self.read = torch.nn.Linear(size, size)
        self.mix = torch.nn.Parameter(torch.randn(num_kinds, size, size))

    def root(self, x: torch.Tensor, kind: int) -> State:
        return {"h": self.read(x) * (kind + 1), "depth": torch.ones(len(x), dtype=torch.long)}

    def forward(self, parent: State, x: torch.Tensor, position: int, kind: int) -> State:
        hidden = torch.tanh(self.read(x) + parent["h"] @ self.mix[kind] / (position + 1))
        return {"h": hidden, "depth": parent["depth"] + 1}


def network_of(direction: Direction) -> TreeNetwork:
    torch.manual_seed(0)
    down = Down(3, VOCABULARY.num_kinds)
    return TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, down=down, direction=direction).double()


def test_a_users_cell_gives_every_node_what_its_way_from_the_root_says() -> None:
    network = network_of("both")
    forest = random_forest(seed=1, num_trees=6, size=14)
    assert network.leaves is not None
    assert network.down is not None
    up_states = TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3).double()
    up_states.load_state_dict({name: value for name, value in network.state_dict().items() if name.startswith("lea")})
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False)
    up = up_states(batch).h
    kind = batch.schedule.kind_of_row[batch.schedule.row_of_node].tolist()
    pointer, child = forest.children()
    expected: dict[int, torch.Tensor] = {}
    depth: dict[int, int] = {}

    def go_down(node: int) -> None:
        for position, below in enumerate(child[pointer[node] : pointer[node + 1]].tolist()):
            parent = {"h": expected[node][None], "depth": torch.tensor([depth[node]])}
            expected[below] = network.down(parent, up[below][None], position, kind[below])["h"][0]  # type: ignore
            depth[below] = depth[node] + 1
            go_down(below)

    for root in (forest.begin[1:] - 1).tolist():
        expected[root], depth[root] = network.down.root(up[root][None], kind[root])["h"][0], 1  # type: ignore
        go_down(root)
    hidden = torch.stack([expected[node] for node in range(forest.num_nodes)])
    for engine in ENGINES:
        for share in (True, False):
            network.engine = engine
            states = network(TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share))
            assert states.names == ("h", "up_h", "down_h", "down_depth")
            torch.testing.assert_close(states.down_h, hidden)
            torch.testing.assert_close(states.up_h, up)
            assert torch.equal(states.h, torch.cat([states.up_h, states.down_h], 1))
            assert states.down_depth.tolist() == [depth[node] for node in range(forest.num_nodes)]
            assert torch.equal(states.root[:, 0], states.h[torch.from_numpy(forest.begin[1:] - 1)])


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("direction", ["down", "both"])
def test_a_users_cell_has_the_same_gradients_on_every_engine(direction: Direction, share: bool) -> None:
    class DownOnly(Down):
        def root(self, x: torch.Tensor, kind: int) -> State:
            return {"h": super().root(x, kind)["h"]}

        def forward(self, parent: State, x: torch.Tensor, position: int, kind: int) -> State:
            return {"h": torch.tanh(self.read(x) + parent["h"] @ self.mix[kind] / (position + 1))}

    torch.manual_seed(0)
    down = DownOnly(3, VOCABULARY.num_kinds)
    network = TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, down=down, direction=direction).double()
    forest = random_forest(seed=2, num_trees=7, size=14)
    expected = results(network, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False), REFERENCE)
    assert expected["gradient of down.mix"].abs().max() > 1e-3
    for engine in ("auto", "autograd"):
        found = results(network, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share), engine)
        assert_same(found, expected, engine)


def test_the_downward_tree_lstm_is_a_step_from_the_parent() -> None:
    torch.manual_seed(0)
    vocabulary, size = Vocabulary(["x", "y"], [("f", 2)]), 2
    tree = Tree("f", [Tree("x"), Tree("f", [Tree("y"), Tree("x")])])  # nodes: x y x f f
    layer = TreeLSTM(size, vocabulary, direction="both").double()
    states = layer(TreeBatch.from_trees([tree], vocabulary))
    assert layer.down is not None
    w, b = layer.down.input_map.weight[0].tolist(), layer.down.input_map.bias[0].tolist()
    u = layer.down.parent_weight.tolist()
    up = states.up_h.tolist()

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    def step(
        node: int, parent: tuple[list[float], list[float]] | None, position: int = 0
    ) -> tuple[list[float], list[float]]:
        a = [sum(v * x for v, x in zip(row, up[node], strict=True)) + bias for row, bias in zip(w, b, strict=True)]
        if parent is not None:
            a = [
                v + sum(m * h for m, h in zip(row, parent[0], strict=True))
                for v, row in zip(a, u[position], strict=True)
            ]
        i, f, o, g = (a[block * size : (block + 1) * size] for block in range(4))
        c = [sigmoid(i[k]) * math.tanh(g[k]) for k in range(size)]
        if parent is not None:
            c = [c[k] + sigmoid(f[k]) * parent[1][k] for k in range(size)]
        return [sigmoid(o[k]) * math.tanh(c[k]) for k in range(size)], c

    root = step(4, None)
    right = step(3, root, 1)
    expected = [step(0, root, 0), step(1, right, 0), step(2, right, 1), right, root]
    for name, place in (("down_h", 0), ("down_c", 1)):
        golden = torch.tensor([each[place] for each in expected], dtype=torch.float64)
        torch.testing.assert_close(states[name], golden, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer_class", [TreeRNN, TreeLSTM])
def test_heads_read_both_ways(layer_class: type[TreeLSTM]) -> None:
    forest = random_forest(seed=3, num_trees=6, size=12)
    layer = layer_class(4, VOCABULARY, direction="both", dropout=0.2)
    states = layer(TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=2))
    assert states.root.shape == (3, 2, 8)
    assert EqualityHead()(states).shape == (3,)
    assert layer.hidden_size == 8
    assert ClassifierHead(layer.hidden_size, 5, nodes="every")(states).shape == (forest.num_nodes, 5)
    assert layer_class(4, VOCABULARY, direction="down").hidden_size == 4


@pytest.mark.parametrize("direction", ["down", "both"])
def test_no_trees_and_trees_of_one_node_go_down(direction: Direction) -> None:
    for network in (network_of(direction), TreeLSTM(3, VOCABULARY, direction=direction).double()):
        width = 6 if direction == "both" else 3
        for engine in ENGINES:
            network.engine = engine
            assert network(TreeBatch.from_trees([], VOCABULARY)).root.shape == (0, 1, width)
            one = TreeBatch.from_trees([Tree("x"), Tree("y")], VOCABULARY)
            assert network(one).root.shape == (2, 1, width)


def test_a_deep_chain_and_a_wide_node_go_down_and_back() -> None:
    states = TreeLSTM(2, VOCABULARY, direction="both")(TreeBatch.from_trees([chain(5_000)], VOCABULARY))
    states.h.sum().backward()
    assert states.h.isfinite().all()
    vocabulary = Vocabulary(["x"], [("f", 30)])
    wide = TreeBatch.from_trees([Tree("f", [Tree("x")] * 30)], vocabulary)
    assert len(TreeRNN(2, vocabulary, direction="down")(wide).h.unique(dim=0)) == 31


@needs_dgl
def test_a_node_of_two_parents_cannot_go_down() -> None:
    batch = TreeBatch.from_dgl(dgl.graph(([0, 0, 1, 2], [1, 2, 3, 3])), allow_several_parents=True)
    layer = TreeLSTM(3, input_size=2, arities=(1, 2), direction="down")
    with pytest.raises(GraphError, match="node 0 has 2 parents; on the way down"):
        layer(batch, torch.zeros(4, 2))


def test_a_direction_and_a_downward_cell_go_together() -> None:
    with pytest.raises(RecipeError, match="direction='both' needs down"):
        TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, direction="both")
    with pytest.raises(RecipeError, match="direction='up' has no use for down"):
        TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, down=Down(3, 2))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_downward_cell_that_breaks_the_protocol_is_refused(engine: str) -> None:
    class Broken(Down):
        def forward(self, parent: State, x: torch.Tensor, position: int, kind: int) -> State:
            return {"h": parent["h"]}

    down = Broken(3, VOCABULARY.num_kinds)
    network = TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, down=down, direction="down", engine=engine)  # type: ignore[arg-type]
    with pytest.raises(CellError, match=r"way down.* Broken.*the states \['h'\]; the leaves have \['depth', 'h'\]"):
        network(TreeBatch.from_trees([Tree("f", [Tree("x")])], VOCABULARY))


def test_a_librarys_downward_cell_with_a_hook_is_called_on_every_engine() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY, direction="both").double()
    assert layer.down is not None
    layer.down.register_forward_hook(lambda cell, given, made: {**made, "h": made["h"] * 2})
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12), VOCABULARY)
    expected = results(layer, batch, REFERENCE)
    for engine in ENGINES:
        assert_same(results(layer, batch, engine), expected, engine)
    untouched = TreeLSTM(3, VOCABULARY, direction="both").double()
    untouched.load_state_dict(layer.state_dict())
    assert not torch.allclose(untouched(batch).h, expected["h"])


def test_what_is_no_downward_cell_and_a_state_that_none_makes_are_named() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12), VOCABULARY)
    network = network_of("both")
    network.down = torch.nn.Linear(3, 3)
    with pytest.raises(CellError, match=r"Linear is no downward cell: it needs root\(x, kind\)"):
        network(batch)
    network = network_of("both")
    network.output = "z"
    with pytest.raises(CellError, match="output='z' names no state on the way up; there are 'h'"):
        network(batch)
