"""Products of features that nodes have by their label are made once for each label, with the same results."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from treemem import Tree, TreeBatch, Vocabulary
from treemem.engines import native
from treemem.engines.cell import LabelVectors
from treemem.nn import TreeCell, TreeNetwork
from treemem.ops import State

VOCABULARY = Vocabulary(["x", "y", "z"], [("f", 2), ("g", 2), ("h", 1), ("k", 3)])
SIZE = 5


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(2 * SIZE, SIZE) for _ in range(len(VOCABULARY.kinds)))
        self.own, self.gru = nn.Linear(SIZE, 2 * SIZE), nn.GRUCell(SIZE, SIZE)

    def leaf(self, x: Tensor, kind: int) -> State:
        return {"h": x}


class _OfKinds(_Cell):
    def forward(self, children: State, x: Tensor, kind: int) -> State:
        return {"h": torch.tanh(self.maps[kind](torch.cat([children["h"].sum(1), x], 1)))}


class _Gru(_Cell):
    def forward(self, children: State, x: Tensor, kind: int) -> State:
        return {"h": self.gru(x, children["h"].mean(1))}


class _OfEachChild(_Cell):
    def forward(self, children: State, x: Tensor, kind: int) -> State:
        h = children["h"]
        gate = torch.sigmoid(self.maps[0](torch.cat([h, functional.gelu(x)[:, None].expand_as(h)], 2)))
        a, b = self.own(x).chunk(2, 1)
        return {"h": torch.tanh(a + b * (gate * h).sum(1))}


class _Mixed(_Cell):  # features are read beside products, and within inputs that depend on children
    def forward(self, children: State, x: Tensor, kind: int) -> State:
        return {"h": torch.tanh(self.maps[0](torch.cat([children["h"].sum(1) * x, x], 1))) + x}


class _Dropped(_Cell):  # the factors differ between rows of a label
    def forward(self, children: State, x: Tensor, kind: int) -> State:
        x = functional.dropout(x, 0.5, self.training)
        return {"h": torch.tanh(self.maps[0](torch.cat([children["h"].sum(1), x], 1)))}


def _batch(share_subtrees: bool = True) -> TreeBatch:
    draw = random.Random(1)

    def tree(depth: int) -> Tree:
        if not depth or draw.random() < 0.1:
            return Tree(draw.choice("xyz"))
        label, arity = draw.choice([("f", 2), ("g", 2), ("h", 1), ("k", 3)])
        return Tree(label, [tree(depth - 1) for _ in range(arity)])

    return TreeBatch.from_trees([tree(5) for _ in range(60)], VOCABULARY, share_subtrees=share_subtrees)


def _results(network: nn.Module, batch: TreeBatch, engine: str) -> dict[str, Tensor | None]:
    network.engine = engine
    network.zero_grad()
    torch.manual_seed(0)
    h = network(batch)["h"]
    weights = torch.linspace(-1, 1, h.numel(), dtype=h.dtype).view_as(h)
    if h.requires_grad:
        (h.sin() * weights).sum().backward()
    return {"h": h.detach(), **{name: value.grad for name, value in network.named_parameters()}}


def _network(cell: type[_Cell]) -> TreeNetwork:
    torch.manual_seed(0)
    return TreeNetwork(cell(), vocabulary=VOCABULARY, embedding_size=SIZE, node_features=True).double()


def _frozen_embedding(network: TreeNetwork) -> None:
    network.leaves.requires_grad_(False)  # type: ignore[union-attr]


def _frozen_cell(network: TreeNetwork) -> None:
    network.cell.requires_grad_(False)  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("freeze", [None, _frozen_embedding, _frozen_cell])
@pytest.mark.parametrize(
    ("cell", "is_by_label"), [(_OfKinds, True), (_Gru, True), (_OfEachChild, True), (_Mixed, False)]
)
def test_results_are_those_of_autograd(
    cell: type[_Cell],
    is_by_label: bool,
    freeze: Callable[[TreeNetwork], None] | None,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choices, repeats = [], native._repeats
    monkeypatch.setattr(native, "_repeats", lambda *given: choices.append(repeats(*given)) or choices[-1])
    torch.set_num_threads(threads)
    try:
        network, batch = _network(cell), _batch(share_subtrees=False)
        if freeze is not None:
            freeze(network)
        results = {engine: _results(network, batch, engine) for engine in ("autograd", "native")}
    finally:
        torch.set_num_threads(1)
    assert choices == [is_by_label]
    for name, expected in results["autograd"].items():
        value = results["native"][name]
        if expected is None:
            assert value is None or not value.any(), name
        else:
            torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10, msg=name)


def test_dropout_of_features_differs_between_rows_of_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    choices, repeats = [], native._repeats
    monkeypatch.setattr(native, "_repeats", lambda *given: choices.append(repeats(*given)) or choices[-1])
    network, batch = _network(_Dropped), _batch()
    network.engine = "native"
    network(batch)
    network.eval()
    network(batch)
    assert choices == [False, True]


def test_few_rows_of_a_label_are_multiplied_one_by_one() -> None:
    network = _network(_Gru)
    batch = TreeBatch.from_trees([Tree("f", [Tree("x"), Tree("y")])], VOCABULARY)
    by_row = _results(network, batch, "native")
    for name, expected in _results(network, batch, "autograd").items():
        if expected is not None:
            torch.testing.assert_close(by_row[name], expected, rtol=1e-10, atol=1e-10, msg=name)


def test_layers_whose_kinds_share_weights_read_labels() -> None:
    torch.manual_seed(0)
    network = TreeCell(6, vocabulary=Vocabulary(["x", "y", "z"], [("f", 2), ("g", 2)]), shared_kinds=True).double()
    draw = random.Random(2)

    def tree(depth: int) -> Tree:
        return Tree(draw.choice("fg"), [tree(depth - 1), tree(depth - 1)]) if depth else Tree(draw.choice("xyz"))

    batch = TreeBatch.from_trees([tree(6) for _ in range(4)], network.vocabulary, share_subtrees=False)
    results = {engine: _results(network, batch, engine) for engine in ("autograd", "native")}
    for name, expected in results["autograd"].items():
        torch.testing.assert_close(results["native"][name], expected, rtol=1e-10, atol=1e-10, msg=name)


def test_vectors_by_label_are_those_of_rows() -> None:
    table = torch.randn(3, 2)
    features = LabelVectors(torch.tensor([2, 0, 2]), 3, 2, lambda label: table[label])
    assert torch.equal(features.of_labels()[features.label], features.vectors(features.label))
