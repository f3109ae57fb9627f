"""Passes from the roots to the leaves, alone and after the way up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.errors import CellError, GraphError, RecipeError
from treemem.nn import ClassifierHead, EqualityHead, TreeLSTM, TreeNetwork, TreeRNN
from treemem.ops import Direction, State
from treemem.schedule.schedule import Schedule
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

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
    forest = random_forest(seed=1, num_trees=6, size=14, widest=3)
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
    forest = random_forest(seed=2, num_trees=7, size=14, widest=3)
    expected = results(network, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False), REFERENCE)
    assert expected["gradient of down.mix"].abs().max() > 1e-3
    for engine in ("auto", "autograd"):
        found = results(network, TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share), engine)
        assert_same(found, expected, engine)


def test_the_downward_tree_lstm_is_a_step_from_the_parent() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x", "y"], [("f", 2)])
    tree = Tree("f", ["x", Tree("f", ["y", "x"])])  # nodes: x y x f f
    layer = TreeLSTM(2, vocabulary, direction="both").double()
    states = layer(TreeBatch.from_trees([tree], vocabulary))
    assert layer.down is not None
    weight, bias = layer.down.input_map.weight[0], layer.down.input_map.bias[0]

    def step(node: int, parent: Any = None, position: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        product = weight @ states.up_h[node] + bias
        if parent is not None:
            product = product + layer.down.parent_weight[position] @ parent[0]
        i, f, o, u = product.split(2)
        c = i.sigmoid() * u.tanh() + (0 if parent is None else f.sigmoid() * parent[1])
        return o.sigmoid() * c.tanh(), c

    root = step(4)
    right = step(3, root, 1)
    expected = [step(0, root, 0), step(1, right, 0), step(2, right, 1), right, root]
    for name, values in zip(("down_h", "down_c"), zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(states[name], torch.stack(values), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer_class", [TreeRNN, TreeLSTM])
def test_heads_read_both_ways(layer_class: type[TreeLSTM]) -> None:
    forest = random_forest(seed=3, num_trees=6, size=12, widest=2)
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
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12, widest=3), VOCABULARY)
    expected = results(layer, batch, REFERENCE)
    for engine in ENGINES:
        assert_same(results(layer, batch, engine), expected, engine)
    untouched = TreeLSTM(3, VOCABULARY, direction="both").double()
    untouched.load_state_dict(layer.state_dict())
    assert not torch.allclose(untouched(batch).h, expected["h"])


def of_two_parents() -> Any:
    schedule = Schedule.from_edges(4, [0, 0, 1, 2], [1, 2, 3, 3], allow_several_parents=True)
    return TreeLSTM(3, input_size=2, arities=(1, 2), direction="down")(TreeBatch(schedule, None), torch.zeros(4, 2))


def changed(**attributes: Any) -> Any:
    network = network_of("both")
    for name, value in attributes.items():
        setattr(network, name, value)
    return network(TreeBatch.from_trees(["x"], VOCABULARY))


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (of_two_parents, GraphError, "node 0 has 2 parents"),
        (lambda: TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, direction="both"), RecipeError, "down"),
        (lambda: TreeNetwork(Up(), vocabulary=VOCABULARY, embedding_size=3, down=Down(3, 2)), RecipeError, "down"),
        (lambda: changed(down=torch.nn.Linear(3, 3)), CellError, r"Linear .* root\(x, kind\)"),
        (lambda: changed(output="z"), CellError, "output='z'"),
    ],
)
def test_what_does_not_go_down_is_refused(run: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run()
