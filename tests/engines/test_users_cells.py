"""Cells that users write: printed or not they equal the definition, and what breaks the protocol is named."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from tree_strategies import VOCABULARY, random_forest

from treemem import RecipeError, Tree, Vocabulary
from treemem.engines.cell import State, runs_by
from treemem.engines.propagate import Engine
from treemem.errors import CellError
from treemem.nn import TreeLSTM, TreeNetwork
from treemem.schedule.tree_batch import TreeBatch

pytestmark = pytest.mark.usefixtures("unset_memory_is_nan")

ARITIES = (1, 2, 3)
every_engine = pytest.mark.parametrize("engine", ENGINES)


def network(cell: nn.Module, size: int = 3, **options: Any) -> TreeNetwork:
    options = {"vocabulary": VOCABULARY, "embedding_size": size, "node_features": True, **options}
    return TreeNetwork(cell, **options).double()  # type: ignore[arg-type]


def batch(share: bool = True) -> TreeBatch:
    forest = random_forest(seed=1, num_trees=5, size=12, widest=max(ARITIES))
    return TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share)


def chain_of(length: int) -> TreeBatch:
    tree = Tree("x")
    for _ in range(length):
        tree = Tree("f", [tree])
    return TreeBatch.from_trees([tree], VOCABULARY)


class Mean(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.temperature = 1.0

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.linear(children["h"].mean(1)) / self.temperature + x)}


class AttentiveGRU(nn.Module):
    """A GRU with attention over its children, and a map of its own for each number of children."""

    def __init__(self, size: int) -> None:
        super().__init__()
        maps = {str(arity): nn.Linear((arity + 1) * size, (arity + 3) * size) for arity in ARITIES}
        self.maps = nn.ModuleDict(maps)

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"]
        arity, size = h.shape[1:]
        gates = self.maps[str(arity)](torch.cat([h.flatten(1), x], 1))
        reset, update, candidate, query = gates.split([arity * size, size, size, size], 1)
        attention = torch.softmax((query[:, None] * h).sum(2) / size**0.5, 1)
        mixed = (attention[:, :, None] * h).sum(1)
        reset, update = torch.sigmoid(reset).unflatten(1, (arity, size)), torch.sigmoid(update)
        return {"h": update * mixed + (1 - update) * torch.tanh(candidate + (reset * h).sum(1))}


class DeepLSTM(nn.Module):
    """A child-sum LSTM whose output passes a two-layer network: products of what other products gave."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.input, self.output, self.update = (nn.Linear(2 * size, size) for _ in range(3))
        self.forget, self.own = nn.Linear(size, size, bias=False), nn.Linear(size, size)
        self.two_layers = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.norm, self.scale = nn.LayerNorm(size), nn.Parameter(torch.rand(size))
        self.dropout = nn.Dropout(0.3)

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x, "c": torch.zeros_like(x)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        assert x is not None
        total = torch.cat([children["h"].sum(1), x], 1)
        forget = torch.sigmoid(self.forget(children["h"]) + self.own(x)[:, None])
        cell = torch.sigmoid(self.input(total)) * torch.tanh(self.update(total)) + (forget * children["c"]).sum(1)
        hidden = self.dropout(torch.sigmoid(self.output(total)) * torch.tanh(cell))
        return {"h": self.norm(self.dropout(self.two_layers(hidden)) * self.scale + hidden), "c": cell}


class MapOfKind(nn.Module):
    """Stacked weights, an entry for each kind, multiplied by ``@``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(len(VOCABULARY.kinds), size, size) / size)

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(functional.linear(children["h"].sum(1), self.weight[kind]))}


class TorchsCells(Mean):
    """Cells of torch, one after the other."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.gru, self.lstm, self.rnn = (
            nn.GRUCell(size, size),
            nn.LSTMCell(size, size, bias=False),
            nn.RNNCell(size, size),
        )

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h, c = self.lstm(x, (children["h"].sum(1), children["h"].mean(1)))
        return {"h": self.rnn(h, self.gru(x, c))}


class InTwoWays(Mean):
    """Reads a bias and a row of a weight besides their product, and multiplies by a vector."""

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h, weight = children["h"], self.linear.weight
        score = torch.softmax(h @ self.linear.bias, 1)
        return {"h": torch.tanh(self.linear((score[:, :, None] * h).sum(1)) + h[:, 0] * weight[0])}


class FrozenAndBuffers(Mean):
    """Frozen parameters and buffers in products and beside them; writes into the result of a product."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.fixed, self.norm = nn.Linear(size, size).requires_grad_(False), nn.LayerNorm(size).requires_grad_(False)
        self.register_buffer("scale", torch.linspace(0.5, 1, size))
        self.register_buffer("matrix", torch.randn(size, size))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        h += x
        h = self.linear(h)
        h.tanh_()
        return {"h": self.norm(self.fixed(h) * self.scale) + h @ self.matrix}


class Several(Mean):
    """Four states of several widths: a number, one without a dimension, and rows of a memory."""

    def leaf(self, x: Tensor, kind: int) -> State:
        return {
            "h": x,
            "depth": x.new_zeros(len(x), 1),
            "size": x.new_ones(len(x)),
            "rows": x.new_zeros(len(x), 2, x.shape[1]),
        }

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        depth, size = children["depth"].amax(1) + 1, children["size"].sum(1) + 1
        h = torch.tanh(self.linear(children["h"].sum(1)) / depth) / size[:, None]
        rows = torch.cat([h[:, None], children["rows"].mean(1)[:, :1]], 1)
        return {"h": h + rows.sum(1), "depth": depth, "size": size, "rows": rows}


class SelfAttention(Mean):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.maps = nn.Linear(size, 3 * size)

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        q, k, v = self.maps(children["h"]).chunk(3, 2)
        return {"h": torch.tanh((torch.softmax(q @ k.transpose(1, 2), 2) @ v).mean(1) + x)}


class ByKind(Mean):
    """A map of each kind, a weight of each position, and a tied weight."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.maps = nn.ModuleList(nn.Linear(size, size) for _ in VOCABULARY.kinds)
        self.positions = nn.Parameter(torch.randn(max(ARITIES), size, size))
        self.embedding = nn.Parameter(torch.randn(max(ARITIES), size))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"] + self.embedding[: children["h"].shape[1]]
        total = sum(functional.linear(each, own) for each, own in zip(h.unbind(1), self.positions, strict=False))
        return {"h": torch.tanh(self.maps[kind](total) + torch.relu(self.linear(total)) @ self.linear.weight.t())}


class HalfDetached(Mean):
    """The gradient stops at the result of two of its maps."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.gate, self.first, self.second = (nn.Linear(size, size) for _ in range(3))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        stopped = self.second(self.first(h)).detach()
        return {"h": torch.tanh(self.linear(h) + stopped) * torch.sigmoid(self.gate(h))}


class Detached(Mean):
    """Trains its map by one of two products only."""

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        weight = self.linear.weight
        assert x is not None
        return {
            "h": torch.tanh(functional.linear(children["h"].sum(1), weight.detach()) + functional.linear(x, weight))
        }


class Bounded(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.linear(children["h"].sum(1))).clamp(max=float("inf"))}


class Down(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * size, size)

    def root(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, parent: State, x: Tensor, position: int, kind: int) -> State:
        return {"h": torch.tanh(self.linear(torch.cat([parent["h"], x], 1)))}


class TwoStates(Mean):
    """Two states of different shapes, one of which not every node passes on, and a weight of each kind."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.mix = nn.Parameter(torch.randn(VOCABULARY.num_kinds, size, size))

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x, "table": x[:, None].expand(-1, 2, -1) * (kind + 1)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        position = torch.arange(1.0, children["h"].shape[1] + 1, dtype=children["h"].dtype)[:, None]
        total = (children["h"] * position).sum(1)
        hidden = torch.tanh(total @ self.mix[kind] + children["table"].mean((1, 2)) + self.linear(x))
        constant = torch.ones_like(children["table"][:, 0])
        return {"h": hidden, "table": constant if kind % 2 else children["table"].amax(1)}


class Remembering(Mean):
    """Adds to every node what it made of the first inner nodes, and uses what it computed once at the leaves."""

    def leaf(self, x: Tensor, kind: int) -> State:
        self.made, self.first = torch.tanh(self.linear.weight).exp(), None
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        if self.first is None:
            self.first = children["h"].mean((0, 1)).square()
        return {"h": torch.tanh(children["h"].sum(1) @ self.made) + self.first}


PRINTED = [Mean, AttentiveGRU, DeepLSTM, MapOfKind, TorchsCells, InTwoWays, FrozenAndBuffers]
PRINTED += [Several, SelfAttention, ByKind, HalfDetached, Bounded]


@pytest.mark.parametrize(
    ("cell", "size", "engine"),
    [
        *((cell, 3, "native") for cell in PRINTED),
        *((cell, 8, "native") for cell in (AttentiveGRU, DeepLSTM)),
        *((cell, 3, engine) for cell in (TwoStates, Remembering, Detached) for engine in ("auto", "autograd")),
    ],
)
def test_a_cell_equals_the_definition(cell: type[Mean], size: int, engine: Engine) -> None:
    torch.manual_seed(0)
    net = network(cell(size), size).eval()
    for share in (True, False):
        if share or cell is not Remembering:  # the first nodes are others if subtrees are shared
            found = results(net, batch(share), engine)
            assert_same(found, results(net, batch(share), REFERENCE), f"shared: {share}")


def test_a_downward_cell_is_printed() -> None:
    net = network(Mean(3), down=Down(3), direction="both")
    assert_same(results(net, batch(), "native"), results(net, batch(), REFERENCE), "")


@every_engine
def test_what_a_cell_keeps_of_other_nodes_has_its_gradient(engine: Engine) -> None:
    """Against the same cell called node by node."""
    torch.manual_seed(0)
    net = network(Remembering(3), engine=engine)
    embedding = net.leaves.embedding.weight  # type: ignore[union-attr]
    state = net.cell.leaf(embedding[:1], 0)
    for _ in range(3):
        state = net.cell({name: value[:, None] for name, value in state.items()}, None, 0)
    found, expected = (
        torch.autograd.grad(root.sin().sum(), [embedding, *net.cell.parameters()], materialize_grads=True)  # type: ignore[attr-defined]
        for root in (net(chain_of(3)).root, state["h"])
    )
    torch.testing.assert_close(found, expected)


WIDTH = 7


POINTWISE = [
    *(functional.gelu, functional.softplus, functional.silu, functional.elu, functional.mish, functional.relu),
    *(functional.leaky_relu, functional.hardtanh, functional.logsigmoid, torch.erf, torch.sin, torch.expm1),
    *(torch.abs, torch.sign, torch.square, torch.reciprocal, lambda x: x.clamp(-0.5, 0.5), lambda x: x**3),
    *(lambda x: torch.where(x > 0, x, 2 * x), lambda x: torch.log1p(x.abs()), lambda x: torch.rsqrt(x * x + 1)),
    *(lambda x: (x > 0).to(x.dtype) * x, lambda x: functional.gelu(x, approximate="tanh"), torch.cos),
    *(lambda x: x.clone().mul_(2), lambda x: torch.softmax(x, 1), lambda x: torch.cumsum(torch.softmax(x, 1), 1)),
    lambda x: x - x.amax(1, True),
    *(lambda x: x.flip(1).cumsum(1).flip(1), lambda x: functional.layer_norm(x, (WIDTH,))),
    *(lambda x: x.clamp_min(0.1), lambda x: x.clamp_max(0.1), functional.normalize),
    *(lambda x: x.std(1, keepdim=True) * x, lambda x: torch.log_softmax(x, 1), lambda x: x / x.norm(dim=1).view(-1, 1)),
]  # fmt: skip  # fmt: skip


OF_CHILDREN = [
    *(lambda h: h.max(1).values, lambda h: torch.min(h, dim=1, keepdim=True)[0].sum(1)),
    *(lambda h: torch.relu(h).max(1)[0], lambda h: h.sigmoid().prod(1), lambda h: (h * h.roll(1, 1)).sum(1)),
    lambda h: h.logsumexp(1),
    *(lambda h: torch.where(h > 0, h, -h).sum(1), lambda h: h.masked_fill(h < 0, 0.1).sum(1), lambda h: h[:, -1]),
    *(lambda h: torch.einsum("mkd,md->mkd", h, h[:, 0]).sum(1), lambda h: h[:, :1].repeat(1, 2, 1).sum(1)),
    lambda h: (functional.cosine_similarity(h, h[:, :1], dim=2)[..., None] * h).sum(1),
    lambda h: functional.scaled_dot_product_attention(h[:, :1], h, h)[:, 0],
]  # fmt: skip  # fmt: skip


class ManyFunctions(nn.Module):
    """The sum of one function of each block of its product."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2 * WIDTH, WIDTH * len(POINTWISE))

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        blocks = self.map(children["h"].flatten(1)).split(WIDTH, 1)
        found = [own(block) for own, block in zip(POINTWISE, blocks, strict=True)]
        return {"h": torch.stack([*found, *(own(children["h"]) for own in OF_CHILDREN)]).sum(0) / 40}


def test_every_function_is_printed_right() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x", "y"], [("f", 2)])
    net = TreeNetwork(ManyFunctions(), vocabulary=vocabulary, embedding_size=WIDTH).double()
    tree = Tree("f", [Tree("f", [Tree("x"), Tree("y")]), Tree("y")])
    trees = TreeBatch.from_trees([tree], vocabulary)
    assert_same(results(net, trees, "native"), results(net, trees, "autograd"), "")


def test_gradients_with_dropout_are_those_of_the_same_masks() -> None:
    torch.manual_seed(0)
    net = network(DeepLSTM(2), 2)
    small = TreeBatch.from_forest(random_forest(seed=3, num_trees=1, size=7, widest=3), VOCABULARY)
    net.engine = "native"
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(*values: Tensor) -> Tensor:
        torch.manual_seed(5)
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (small,)).root

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


class OfTheClass(Mean):
    scale = 1.0
    table = np.ones(1)

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        factor = self.scale * float(self.table[0]) * FACTORS[0] / self.temperature
        return {"h": self.linear(children["h"].sum(1)) * factor}


FACTORS = [1.0]


def test_values_beside_the_weights_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(OfTheClass(3))
    before = results(net, batch(), "native")["root"]
    for change in (
        lambda: monkeypatch.setattr(net.cell, "temperature", 2.0),
        lambda: monkeypatch.setattr(OfTheClass, "scale", 5.0),
        lambda: monkeypatch.setattr(OfTheClass, "table", np.full(1, 3.0)),
        lambda: monkeypatch.setitem(globals(), "FACTORS", [2.0]),
    ):
        change()
        found = results(net, batch(), "native")
        assert_same(found, results(net, batch(), "autograd"), "")
        assert not torch.allclose(found["root"], before)
        before = found["root"]


def test_nan_stays_nan() -> None:
    class Relu(Mean):
        def forward(self, children: State, x: Tensor | None, kind: int) -> State:
            return {"h": functional.relu(self.linear(children["h"].sum(1))) + x}

    net = network(Relu(3))
    with torch.no_grad():
        net.cell.linear.bias[0] = float("nan")
    found = results(net, batch(), "native")
    assert found["root"].isnan().any()
    assert_same(found, results(net, batch(), "autograd"), "")


class Formula(Mean):
    """A cell of one line, which may read its kind and write down what it was called with."""

    def __init__(self, formula: Callable[[Any, Tensor, int], Tensor]) -> None:
        super().__init__(3)
        self.formula, self.kinds = formula, [0]
        self.biases = nn.Parameter(torch.randn(len(VOCABULARY.kinds), 3))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": self.formula(self, children["h"], kind)}


OUTSIDE = torch.ones(3, dtype=torch.float64)
LINE = r"test_users_cells.py, line \d+: .*"
NOT_PRINTED: dict[str, tuple[Callable[[Any, Tensor, int], Any], str]] = {
    "part of a weight": (
        lambda own, h, kind: functional.linear(h.sum(1), own.linear.weight / own.linear.weight.norm()),
        f"part of a weight.*multiply by a whole weight.*{LINE}linear",
    ),
    "a checkpoint": (lambda own, h, kind: checkpoint(own.linear, h.sum(1), use_reentrant=False), "checkpoint"),
    "a list": (lambda own, h, kind: own.linear(h.sum(1)) + (own.kinds.append(kind) or 0), "writes to attributes"),
    "formulas of kinds": (lambda own, h, kind: own.linear(h.sum(1)) + own.biases[kind], "have different formulas"),
    "an order": (lambda own, h, kind: own.linear(h.sort(1).values[:, 0]), rf"sort cannot be printed \({LINE}sort"),
    "a choice": (lambda own, h, kind: own.linear(h[:, 0] if h.sum() > 0 else -h[:, 0]), "by the numbers in a tensor"),
    "other tensors": (lambda own, h, kind: own.linear(h.sum(1)) * OUTSIDE, "not a learned parameter of the cell"),
    "other rows": (lambda own, h, kind: own.linear(h.sum(1) - h.sum(1).mean(0)), "on its own inputs alone"),
}


@pytest.mark.parametrize("sort", NOT_PRINTED)
def test_what_cannot_be_printed_runs_under_autograd_and_the_log_says_why_once(
    sort: str, caplog: pytest.LogCaptureFixture
) -> None:
    formula, reason = NOT_PRINTED[sort]
    net, trees = network(Formula(formula)), batch()
    with caplog.at_level(logging.INFO, logger="treemem"):
        auto = results(net, trees, "auto")
        results(net, trees, "auto")
    assert_same(auto, results(net, trees, "autograd"), "")
    told = [each.getMessage() for each in caplog.records if "autograd" in each.getMessage()]
    assert len(told) == 1
    net.engine = "native"
    with pytest.raises(RecipeError, match=reason):
        net(trees)


class ChangedInputs(Mean):
    """Writes into what it has multiplied, which autograd allows if the weights are not trained."""

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        first = self.linear(h)
        return {"h": torch.tanh(first + self.linear(h.mul_(2)))}


def test_inputs_that_change_between_two_products_are_two_inputs() -> None:
    net = network(ChangedInputs(3))
    net.requires_grad_(False)
    expected = net(batch()).root
    net.engine = "native"
    torch.testing.assert_close(net(batch()).root, expected, rtol=0, atol=1e-10)


def test_a_map_whose_result_is_detached_has_no_gradient() -> None:
    net = network(HalfDetached(3), engine="native")
    net(batch()).root.sum().backward()
    without = {name for name, value in net.cell.named_parameters() if value.grad is None}
    assert without == {f"{name}.{kind}" for name in ("first", "second") for kind in ("weight", "bias")}


class Count(nn.Module):
    """Without parameters and inputs, in whole numbers."""

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"size": torch.ones(len(x), 1, dtype=torch.int64)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"size": children["size"].sum(1) + 1}


class Complex(nn.Module):
    """A cell of complex numbers, which counts its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.tensor([0.3 + 0.9j, -0.8 + 0.2j, 0.5 - 0.7j], dtype=torch.complex128))

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": torch.complex(x, x.flip(1)), "size": torch.ones(len(x), dtype=torch.int64)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1) * self.turn, "size": children["size"].sum(1) + 1}


def test_states_may_be_whole_and_complex_numbers_on_every_engine_and_in_parts() -> None:
    torch.manual_seed(0)
    complexes, trees = TreeNetwork(Complex(), vocabulary=VOCABULARY, embedding_size=3), batch()
    complexes.leaves.double()  # type: ignore[union-attr]
    sizes, found = trees.forest.subtree_size().tolist(), []  # type: ignore[union-attr]
    for engine, options in [*((engine, {}) for engine in ENGINES), ("auto", {"keep": "roots", "rows_at_once": 3})]:
        complexes.engine = engine
        complexes.zero_grad()
        states = complexes(trees, **options)
        states.root.abs().sum().backward()
        found.append([parameter.grad for parameter in complexes.parameters()])
        if not options:
            assert states["size"].tolist() == sizes
            assert TreeNetwork(Count(), output="size", engine=engine)(trees)["size"].flatten().tolist() == sizes
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
    assert all(gradient is None or gradient.abs().sum() > 0 for gradient in found[0])
    assert complexes.cell.turn.grad is not None  # type: ignore[union-attr]


class Parametrized(nn.Module):
    """A cell with an orthogonal map, which is costly to make."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).double())

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": self.map(x)}

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.map(children["h"].sum(1)))}


def test_a_parametrized_cell_may_run_under_the_cache() -> None:
    torch.manual_seed(0)
    net = network(Parametrized())
    expected = results(net, batch(), "auto")
    with nn.utils.parametrize.cached():
        assert_same(results(net, batch(), "auto"), expected, "cached")


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_forward_hooks_of_a_cell_fire_once_a_segment(register: str) -> None:
    layer, trees = TreeLSTM(3, VOCABULARY), batch()
    kinds = []
    handle = getattr(layer.cell, register)(lambda module, given, *made: kinds.append(given[2]))
    layer(trees)
    assert kinds == [segment.kind for level in trees.schedule.levels[1:] for segment in level.segments]
    handle.remove()
    assert runs_by(layer.cell, "forward_kinds")


class Broken(nn.Module):
    """A cell that breaks the protocol in one way."""

    def __init__(self, leaf: Any, inner: Any) -> None:
        super().__init__()
        self.made_leaf, self.made_inner = leaf, inner

    def leaf(self, x: Tensor, kind: int) -> Any:
        return self.made_leaf(x)

    def forward(self, children: State, x: Tensor | None, kind: int) -> Any:
        return self.made_inner(children["h"])


GOOD_LEAF = lambda x: {"h": x}  # noqa: E731
GOOD_INNER = lambda h: {"h": h[:, 0]}  # noqa: E731


class NoLeaf(nn.Module):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1)}


class NoForward(nn.Module):
    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}


class NoModule:
    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def __call__(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": children["h"].sum(1)}


@every_engine
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (Broken(lambda x: x, GOOD_INNER), "leaf.* must return a dict of tensors, not Tensor"),
        (Broken(lambda x: {}, GOOD_INNER), "must return a dict of tensors, not an empty dict"),
        (Broken(lambda x: {"h": 1.0}, GOOD_INNER), "state 'h' must be a tensor, not float"),
        (Broken(lambda x: {"h": x[:-1]}, GOOD_INNER), "state 'h' has shape .* its first size must be"),
        (Broken(GOOD_LEAF, lambda h: {"h": h[:, 0], "c": h[:, 0]}), r"the states \['c', 'h'\].* have \['h'\]"),
        (Broken(lambda x: {"h": x, "c": x}, GOOD_INNER), r"the states \['h'\]; .* \['c', 'h'\]"),
        (Broken(GOOD_LEAF, lambda h: {"h": h}), r"state 'h' has shape .*; it must be \[\d+, 3\]"),
        (Broken(GOOD_LEAF, lambda h: {"h": h.sum((0, 1))}), "first size must be"),
        (NoLeaf(), "the cell NoLeaf has no leaf"),
        (NoForward(), "the cell NoForward has no forward"),
        (NoModule(), "the cell NoModule has no parameters"),
        (nn.Module(), "the cell Module has no forward and no leaf"),
        (NoLeaf, "the cell is the class NoLeaf itself"),
    ],
)
def test_a_cell_that_breaks_the_protocol_is_refused(cell: Any, message: str, engine: Engine) -> None:
    with pytest.raises(CellError, match=message):
        network(cell, engine=engine)(batch())


@every_engine
def test_a_state_that_no_cell_makes_is_named(engine: Engine) -> None:
    states = network(TwoStates(3), output="z", engine=engine)(batch())
    for read in (lambda: states.root, lambda: states["z"]):
        with pytest.raises(CellError, match=r"'z'.* there are 'h', 'table'"):
            read()


@every_engine
def test_a_learned_tensor_that_is_no_parameter_has_its_gradient(engine: Engine) -> None:
    outside = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    net = network(Broken(GOOD_LEAF, lambda h: {"h": h.sum(1) * outside}), node_features=False, engine=engine)
    root = net(TreeBatch.from_trees([Tree("f", [Tree("f", ["x"]), "x"])], VOCABULARY)).root
    root.sum().backward()
    embedding = net.leaves.embedding.weight.detach()[0]  # type: ignore[union-attr]
    torch.testing.assert_close(root[0, 0], (4 + 2) * embedding)  # w ** 2 * x + w * x
    torch.testing.assert_close(outside.grad, (2 * 2 + 1) * embedding)
