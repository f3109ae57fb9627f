"""Products of features that nodes have by their label are made once for each label, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_parity import assert_same, results
from torch import Tensor, nn
from torch.nn import functional
from tree_networks import make
from tree_strategies import VOCABULARY, random_forest

from treemem import TreeBatch
from treemem.engines import native
from treemem.engines.cell import LabelVectors
from treemem.native.threads import torch_threads
from treemem.nn import TreeNetwork
from treemem.ops import State

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


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each run so far made products by label."""
    found, repeats = [], native._repeats
    monkeypatch.setattr(native, "_repeats", lambda *given: found.append(repeats(*given)) or found[-1])
    return found


def _batch(num_trees: int = 60) -> TreeBatch:
    return TreeBatch.from_forest(random_forest(1, num_trees, 20, widest=3), VOCABULARY, share_subtrees=False)


def _network(cell: type[_Cell]) -> TreeNetwork:
    torch.manual_seed(0)
    return TreeNetwork(cell(), vocabulary=VOCABULARY, embedding_size=SIZE, node_features=True).double()


@pytest.mark.parametrize("freeze", [None, lambda net: net.leaves, lambda net: net.cell])
@pytest.mark.parametrize(
    ("cell", "is_by_label"), [(_OfKinds, True), (_Gru, True), (_OfEachChild, True), (_Mixed, False)]
)
def test_results_are_those_of_autograd(
    cell: type[_Cell], is_by_label: bool, freeze: Callable[[TreeNetwork], Any] | None, choices: list[bool]
) -> None:
    network = _network(cell)
    if freeze is not None:
        freeze(network).requires_grad_(False)
    expected = results(network, _batch(), "autograd")
    for threads in (1, 2):
        with torch_threads(threads):
            assert_same(results(network, _batch(), "native"), expected, f"{threads} threads")
    assert choices == [is_by_label] * 2


def test_dropout_of_features_differs_between_rows_of_a_label(choices: list[bool]) -> None:
    network = _network(_Dropped)
    results(network, _batch(), "native")
    results(network.eval(), _batch(), "native")
    assert choices == [False, True]


def test_few_rows_of_a_label_are_multiplied_one_by_one(choices: list[bool]) -> None:
    network = _network(_Gru)
    assert_same(results(network, _batch(1), "native"), results(network, _batch(1), "autograd"), "")
    assert choices == [False]


def test_layers_whose_kinds_share_weights_read_labels(choices: list[bool]) -> None:
    layer = make("tree cell shared kinds")
    assert_same(results(layer, _batch(), "native"), results(layer, _batch(), "autograd"), "")
    assert choices == [True]


def test_vectors_by_label_are_those_of_rows() -> None:
    table = torch.randn(3, 2)
    features = LabelVectors(torch.tensor([2, 0, 2]), 3, 2, lambda label: table[label])
    assert torch.equal(features.of_labels()[features.label], features.vectors(features.label))
