"""Users' cells in C++: equal to the definition on every output and gradient."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from engine_parity import REFERENCE, assert_same, results
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from tree_strategies import VOCABULARY, random_forest

from treemem import RecipeError, Tree, Vocabulary
from treemem.engines.cell import State
from treemem.nn import TreeNetwork
from treemem.schedule.tree_batch import TreeBatch

ARITIES = {arity for _, arity in VOCABULARY.kinds if arity}


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
]  # fmt: skip


OF_CHILDREN = [
    *(lambda h: h.max(1).values, lambda h: torch.min(h, dim=1, keepdim=True)[0].sum(1)),
    *(lambda h: torch.relu(h).max(1)[0], lambda h: h.sigmoid().prod(1), lambda h: (h * h.roll(1, 1)).sum(1)),
    lambda h: h.logsumexp(1),
    *(lambda h: torch.where(h > 0, h, -h).sum(1), lambda h: h.masked_fill(h < 0, 0.1).sum(1), lambda h: h[:, -1]),
    *(lambda h: torch.einsum("mkd,md->mkd", h, h[:, 0]).sum(1), lambda h: h[:, :1].repeat(1, 2, 1).sum(1)),
    lambda h: (functional.cosine_similarity(h, h[:, :1], dim=2)[..., None] * h).sum(1),
    lambda h: functional.scaled_dot_product_attention(h[:, :1], h, h)[:, 0],
]  # fmt: skip


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


def network(cell: nn.Module, size: int, **options: object) -> TreeNetwork:
    return TreeNetwork(cell, vocabulary=VOCABULARY, embedding_size=size, node_features=True, **options).double()  # type: ignore[arg-type]


def batch(share: bool = True) -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=12), VOCABULARY, share_subtrees=share)


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("cell", [Mean, AttentiveGRU, DeepLSTM, MapOfKind])
def test_printed_equals_naive(cell: type[nn.Module], size: int) -> None:
    torch.manual_seed(0)
    net = network(cell(size), size).eval()
    for share in (True, False):
        assert_same(results(net, batch(share), "native"), results(net, batch(share), REFERENCE), f"shared: {share}")


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
    small = TreeBatch.from_forest(random_forest(seed=3, num_trees=1, size=7), VOCABULARY)
    net.engine = "native"
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(*values: Tensor) -> Tensor:
        torch.manual_seed(5)
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (small,)).root

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


def test_an_attribute_that_changes_is_read_again() -> None:
    net = network(Mean(3), 3, engine="native")
    before = net(batch()).root
    net.cell.temperature = 2.0
    after = net(batch()).root
    net.engine = "autograd"
    torch.testing.assert_close(after, net(batch()).root, rtol=0, atol=1e-10)
    assert not torch.allclose(before, after)


def test_nan_stays_nan() -> None:
    class Relu(Mean):
        def forward(self, children: State, x: Tensor | None, kind: int) -> State:
            return {"h": functional.relu(self.linear(children["h"].sum(1))) + x}

    net = network(Relu(3), 3)
    with torch.no_grad():
        net.cell.linear.bias[0] = float("nan")
    found, expected = results(net, batch(), "native"), results(net, batch(), "autograd")
    assert found["root"].isnan().any()
    assert_same(found, expected, "")


class Sorting(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": self.linear(children["h"].sort(1).values[:, 0])}


class Branching(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        return {"h": self.linear(h if h.sum() > 0 else -h)}


class Hidden(Mean):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.outside = [torch.ones(size, dtype=torch.float64)]

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": self.linear(children["h"].sum(1)) * self.outside[0]}


class OfTheBatch(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        return {"h": self.linear(h - h.mean(0))}


class PartOfAWeight(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        weight = self.linear.weight / self.linear.weight.norm()
        return {"h": functional.linear(children["h"].sum(1), weight)}


class Counting(Mean):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.kinds: list[int] = []

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        self.kinds.append(kind)
        return {"h": self.linear(children["h"].sum(1))}


class Checkpointed(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        return {"h": checkpoint(lambda h: torch.tanh(self.linear(h)), h, use_reentrant=False)}


class OfTheKind(Mean):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.biases = nn.Parameter(torch.randn(len(VOCABULARY.kinds), size))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.linear(children["h"].sum(1)) + self.biases[kind])}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (
            PartOfAWeight,
            r"part of a weight.*multiply by a whole weight.*test_users_cells.py, line \d+: return .*linear",
        ),
        (Checkpointed, "checkpoint"),
        (Counting, "writes to attributes"),
        (OfTheKind, "have different formulas"),
        (Sorting, r"the operation sort cannot be printed \(test_users_cells.py, line \d+: .*sort"),
        (Branching, "it decides by the numbers in a tensor"),
        (Hidden, "not a learned parameter of the cell"),
        (OfTheBatch, "a row does not depend on its own inputs alone"),
    ],
)
def test_what_cannot_be_printed_runs_under_autograd_and_the_log_says_why_once(
    cell: type[Mean], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    net = network(cell(3), 3)
    trees = TreeBatch.from_forest(random_forest(seed=1, num_trees=2, size=12), VOCABULARY)
    with caplog.at_level(logging.INFO, logger="treemem"):
        auto = results(net, trees, "auto")
        results(net, trees, "auto")
    assert_same(auto, results(net, trees, "autograd"), "")
    told = [each.getMessage() for each in caplog.records if "autograd" in each.getMessage()]
    assert len(told) == 1
    net.engine = "native"
    with pytest.raises(RecipeError, match=reason):
        net(trees)


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


class ChangedInputs(Mean):
    """Writes into what it has multiplied, which autograd allows if the weights are not trained."""

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        first = self.linear(h)
        return {"h": torch.tanh(first + self.linear(h.mul_(2)))}


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


@pytest.mark.parametrize("cell", [TorchsCells, InTwoWays, FrozenAndBuffers, Several, SelfAttention, ByKind])
def test_a_cell_of_many_sorts_equals_autograd(cell: type[Mean]) -> None:
    net = network(cell(3), 3)
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "")


def test_inputs_that_change_between_two_products_are_two_inputs() -> None:
    net = network(ChangedInputs(3), 3)
    net.requires_grad_(False)
    expected = net(batch()).root
    net.engine = "native"
    torch.testing.assert_close(net(batch()).root, expected, rtol=0, atol=1e-10)


class Down(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * size, size)

    def root(self, x: Tensor, kind: int) -> State:
        return {"h": x}

    def forward(self, parent: State, x: Tensor, position: int, kind: int) -> State:
        return {"h": torch.tanh(self.linear(torch.cat([parent["h"], x], 1)))}


def test_a_downward_cell_is_printed() -> None:
    net = network(Mean(3), 3, down=Down(3), direction="both")
    assert_same(results(net, batch(), "native"), results(net, batch(), REFERENCE), "")


class HalfDetached(Mean):
    """The gradient stops at the result of two of its maps."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.gate, self.first, self.second = (nn.Linear(size, size) for _ in range(3))

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        h = children["h"].sum(1)
        stopped = self.second(self.first(h)).detach()
        return {"h": torch.tanh(self.linear(h) + stopped) * torch.sigmoid(self.gate(h))}


def test_a_map_whose_result_is_detached_has_no_gradient() -> None:
    net = network(HalfDetached(3), 3, engine="native")
    net(batch()).root.sum().backward()
    without = {name for name, value in net.cell.named_parameters() if value.grad is None}
    assert without == {f"{name}.{kind}" for name in ("first", "second") for kind in ("weight", "bias")}
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "")


class Detached(Mean):
    """Trains its map by one of two products only."""

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        weight = self.linear.weight
        assert x is not None
        return {
            "h": torch.tanh(functional.linear(children["h"].sum(1), weight.detach()) + functional.linear(x, weight))
        }


class OfTheClass(Mean):
    scale = 1.0
    table = np.ones(1)

    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": self.linear(children["h"].sum(1)) * self.scale * float(self.table[0]) * FACTORS[0]}


class Bounded(Mean):
    def forward(self, children: State, x: Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(self.linear(children["h"].sum(1))).clamp(max=float("inf"))}


FACTORS = [1.0]


def test_a_weight_without_its_gradient_gets_none() -> None:
    net = network(Detached(3), 3)
    assert_same(results(net, batch(), "auto"), results(net, batch(), "autograd"), "")


def test_values_beside_the_cell_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network(OfTheClass(3), 3)
    results(net, batch(), "native")
    monkeypatch.setattr(OfTheClass, "scale", 5.0)
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "class")
    monkeypatch.setattr(OfTheClass, "table", np.full(1, 3.0))
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "array")
    monkeypatch.setitem(globals(), "FACTORS", [2.0])
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "global")


def test_infinity_is_printed() -> None:
    net = network(Bounded(3), 3)
    assert_same(results(net, batch(), "native"), results(net, batch(), "autograd"), "")
