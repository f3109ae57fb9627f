"""Cells that users write: they run on every engine, and what breaks the protocol is said clearly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from tree_strategies import VOCABULARY, random_forest

from treemem.engines.cell import runs_by
from treemem.engines.propagate import Engine
from treemem.errors import CellError
from treemem.nn import TreeLSTM, TreeNetwork
from treemem.ops import State
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")


class TwoStates(torch.nn.Module):
    """A cell with two states of different shapes, one of which not every node passes on, and a weight for each kind."""

    def __init__(self, size: int, input_size: int, num_kinds: int, reads_x: bool = False) -> None:
        super().__init__()
        self.read = torch.nn.Linear(input_size, size)
        self.mix = torch.nn.Parameter(torch.randn(num_kinds, size, size))
        self.x_map = torch.nn.Linear(input_size, size, bias=False) if reads_x else None

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        hidden = self.read(x)
        return {"h": hidden, "table": hidden[:, None].expand(-1, 2, -1) * (kind + 1)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        position = torch.arange(1.0, children["h"].shape[1] + 1, dtype=children["h"].dtype)[:, None]
        total = (children["h"] * position).sum(1)
        hidden = torch.tanh(total @ self.mix[kind] + children["table"].mean((1, 2)))
        if self.x_map is not None and x is not None:
            hidden = hidden + self.x_map(x)
        constant = torch.ones_like(children["table"][:, 0])
        return {"h": hidden, "table": constant if kind % 2 else children["table"].amax(1)}


def network_of(cell: torch.nn.Module, **options: Any) -> TreeNetwork:
    return TreeNetwork(cell, vocabulary=VOCABULARY, embedding_size=3, **options).double()  # type: ignore[arg-type]


def test_a_users_cell_reads_features_on_every_engine() -> None:
    torch.manual_seed(0)
    cell = TwoStates(4, 3, VOCABULARY.num_kinds, reads_x=True)
    network = TreeNetwork(cell, vocabulary=VOCABULARY, input_size=3, node_features=True).double()
    forest = random_forest(seed=1, num_trees=7, size=12)
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False)
    feat = torch.randn(forest.num_nodes, 3, dtype=torch.float64)
    expected = results(network, batch, REFERENCE, feat)
    for engine in ("auto", "autograd"):
        assert_same(results(network, batch, engine, feat), expected, engine)


def test_a_cell_without_parameters_or_inputs_counts_nodes() -> None:
    class Count(torch.nn.Module):
        def leaf(self, x: torch.Tensor, kind: int) -> State:
            return {"size": torch.ones(len(x), 1)}

        def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
            return {"size": children["size"].sum(1) + 1}

    forest = random_forest(seed=2, num_trees=5, size=12)
    for engine in ENGINES:
        network = TreeNetwork(Count(), output="size", engine=engine)
        states = network(TreeBatch.from_forest(forest, VOCABULARY))
        assert states.root.flatten().tolist() == [tree.size for tree in forest]
        assert states["size"].flatten().tolist() == forest.subtree_size().tolist()


class Broken(torch.nn.Module):
    """A cell that breaks the protocol in one way."""

    def __init__(self, leaf: Any, inner: Any) -> None:
        super().__init__()
        self.made_leaf, self.made_inner = leaf, inner

    def leaf(self, x: torch.Tensor, kind: int) -> Any:
        return self.made_leaf(x)

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> Any:
        return self.made_inner(children["h"])


GOOD_LEAF = lambda x: {"h": x}  # noqa: E731
BROKEN = {
    "no dict": (lambda x: x, None, "leaf.* must return a dict of tensors, not Tensor"),
    "no states": (lambda x: {}, None, "must return a dict of tensors, not an empty dict"),
    "no tensor": (lambda x: {"h": 1.0}, None, "state 'h' must be a tensor, not float"),
    "too few leaves": (lambda x: {"h": x[:-1]}, None, "state 'h' has shape .* its first size must be"),
    "another state": (GOOD_LEAF, lambda h: {"h": h[:, 0], "c": h[:, 0]}, r"the states \['c', 'h'\].* have \['h'\]"),
    "a missing state": (lambda x: {"h": x, "c": x}, lambda h: {"h": h[:, 0]}, r"the states \['h'\]; .* \['c', 'h'\]"),
    "children kept apart": (GOOD_LEAF, lambda h: {"h": h}, r"state 'h' has shape .*; it must be \[\d+, 3\]"),
    "nodes summed": (GOOD_LEAF, lambda h: {"h": h.sum((0, 1))}, "first size must be"),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", BROKEN)
def test_states_that_break_the_protocol_are_refused(case: str, engine: Engine) -> None:
    leaf, inner, message = BROKEN[case]
    network = network_of(Broken(leaf, inner or (lambda h: {"h": h[:, 0]})), engine=engine)
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=9, size=12), VOCABULARY)
    with pytest.raises(CellError, match=message):
        network(batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_learned_tensor_that_is_no_parameter_has_its_gradient(engine: Engine) -> None:
    outside = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    network = network_of(Broken(GOOD_LEAF, lambda h: {"h": h.sum(1) * outside}), engine=engine)
    x, inner = Tree("x"), Tree("f", [Tree("x")])
    vocabulary = Vocabulary(["x"], [("f", 1), ("f", 2)])
    network = TreeNetwork(network.cell, vocabulary=vocabulary, embedding_size=3, engine=engine).double()
    root = network(TreeBatch.from_trees([Tree("f", [inner, x])], vocabulary)).root
    root.sum().backward()
    embedding = network.leaves.embedding.weight.detach()[0]  # type: ignore[union-attr]
    torch.testing.assert_close(root[0, 0], (4 + 2) * embedding)  # w ** 2 * x + w * x
    torch.testing.assert_close(outside.grad, (2 * 2 + 1) * embedding)


def test_a_state_may_count_in_integers() -> None:
    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(1.5))

        def leaf(self, x: torch.Tensor, kind: int) -> State:
            return {"h": x, "size": torch.ones(len(x), dtype=torch.long)}

        def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
            weight = children["size"][:, :, None]
            mean = (children["h"] * weight).sum(1) / weight.sum(1)
            return {"h": mean * self.scale, "size": children["size"].sum(1) + 1}

    forest = random_forest(seed=2, num_trees=5, size=12)
    batch = TreeBatch.from_forest(forest, VOCABULARY)
    network = network_of(Mean())
    found = []
    for engine in ENGINES:
        network.engine = engine
        network.zero_grad()
        states = network(batch)
        states.root.sum().backward()
        assert states["size"].tolist() == forest.subtree_size().tolist()
        found.append((states.root.detach(), [parameter.grad for parameter in network.parameters()]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_forward_hooks_of_a_cell_fire_once_a_segment(register: str) -> None:
    layer = TreeLSTM(3, VOCABULARY)
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12), VOCABULARY)
    kinds = []
    handle = getattr(layer.cell, register)(lambda module, given, *made: kinds.append(given[2]))
    layer(batch)
    assert kinds == [segment.kind for level in batch.schedule.levels[1:] for segment in level.segments]
    handle.remove()
    assert runs_by(layer.cell, "forward_kinds")


class NoLeaf(torch.nn.Module):
    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1)}


class NoForward(torch.nn.Module):
    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}


class NoModule:
    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x}

    def __call__(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (NoLeaf(), "the cell NoLeaf has no leaf; a cell is an nn.Module with leaf"),
        (NoForward(), "the cell NoForward has no forward; "),
        (NoModule(), "the cell NoModule has no parameters; "),
        (torch.nn.Module(), "the cell Module has no forward and no leaf; "),
        (NoLeaf, "the cell is the class NoLeaf itself"),
    ],
)
def test_what_a_cell_lacks_is_named(cell: Any, message: str, engine: Engine) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=3, size=12), VOCABULARY)
    with pytest.raises(CellError, match=message):
        network_of(cell, engine=engine)(batch)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_state_that_no_cell_makes_is_named(engine: Engine) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=3, size=12), VOCABULARY)
    states = network_of(TwoStates(4, 3, VOCABULARY.num_kinds), output="z", engine=engine)(batch)
    with pytest.raises(CellError, match="output='z' names no state; there are 'h', 'table'"):
        states.root  # noqa: B018
    with pytest.raises(CellError, match="there is no state 'z'; there are 'h', 'table'"):
        states["z"]


class Once(torch.nn.Module):
    """A cell that computes its matrix once a batch, at the leaves or at the first inner nodes."""

    def __init__(self, at_leaves: bool) -> None:
        super().__init__()
        self.mix = torch.nn.Parameter(torch.randn(3, 3))
        self.at_leaves = at_leaves
        self.made: torch.Tensor | None = None

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        if self.at_leaves:
            self.made = torch.tanh(self.mix).exp()
            return {"h": x @ self.made}
        self.made = None
        return {"h": x}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        if self.made is None:
            self.made = torch.tanh(self.mix).exp()
        return {"h": torch.tanh(children["h"].sum(1) @ self.made)}


@pytest.mark.parametrize("at_leaves", [True, False])
def test_what_a_cell_computes_once_a_batch_may_be_used_in_every_segment(at_leaves: bool) -> None:
    torch.manual_seed(0)
    network = network_of(Once(at_leaves))
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=7, size=12), VOCABULARY)
    expected = results(network, batch, REFERENCE)
    for engine in ("auto", "autograd", "auto"):
        assert_same(results(network, batch, engine), expected, engine)


class Remembering(torch.nn.Module):
    """A cell that adds to every node what it made of the first nodes that it was called with."""

    first: torch.Tensor | None = None

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        self.first = None
        return {"h": x}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        if self.first is None:
            self.first = children["h"].mean((0, 1)).square()
        return {"h": children["h"].sum(1) + self.first}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_cell_keeps_of_other_nodes_has_its_gradient(engine: Engine) -> None:
    vocabulary = Vocabulary(["x"], [("f", 1)])
    network = TreeNetwork(Remembering(), vocabulary=vocabulary, embedding_size=3, engine=engine).double()
    tree = Tree("f", [Tree("f", [Tree("f", [Tree("x")])])])
    root = network(TreeBatch.from_trees([tree], vocabulary)).root
    root.sum().backward()
    embedding = network.leaves.embedding.weight  # type: ignore[union-attr]
    torch.testing.assert_close(root.flatten(), (embedding + 3 * embedding.square()).flatten())
    torch.testing.assert_close(embedding.grad, 1 + 6 * embedding.detach())


class Parametrized(torch.nn.Module):
    """A cell with an orthogonal map, which is costly to make."""

    def __init__(self) -> None:
        super().__init__()
        self.map = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(3, 3).double())

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": self.map(x)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.map(children["h"].sum(1)))}


def test_a_parametrized_cell_may_run_under_the_cache() -> None:
    torch.manual_seed(0)
    network = network_of(Parametrized())
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=7, size=12), VOCABULARY)
    expected = results(network, batch, "auto")
    with torch.nn.utils.parametrize.cached():
        assert_same(results(network, batch, "auto"), expected, "cached")


class Complex(torch.nn.Module):
    """A cell of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = torch.nn.Parameter(torch.tensor([0.3 + 0.9j, -0.8 + 0.2j, 0.5 - 0.7j], dtype=torch.complex128))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": torch.complex(x, x.flip(1))}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1) * self.turn}


def test_complex_states_have_gradients_on_every_engine_and_in_parts() -> None:
    torch.manual_seed(0)
    network = TreeNetwork(Complex(), vocabulary=VOCABULARY, embedding_size=3)
    network.leaves.double()  # type: ignore[union-attr]
    batch = TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12), VOCABULARY)
    found = []
    for engine, options in [*((engine, {}) for engine in ENGINES), ("auto", {"keep": "roots", "rows_at_once": 3})]:
        network.engine = engine
        network.zero_grad()
        network(batch, **options).root.abs().sum().backward()
        found.append([parameter.grad for parameter in network.parameters()])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    assert all(gradient is None or gradient.abs().sum() > 0 for gradient in found[0])
    assert network.cell.turn.grad is not None  # type: ignore[union-attr]
