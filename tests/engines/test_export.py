"""What `torch.export` makes of a layer: a program for trees of one shape."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from engine_parity import needs_dgl

from treemem.engines.propagate import Engine
from treemem.errors import RecipeError
from treemem.nn import (
    ClassifierHead,
    StackTreeLSTM,
    TreeCell,
    TreeLayer,
    TreeLSTM,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["x", "y", "1"], [("add", 2), ("sin", 1)])
TREES = [Tree("add", [Tree("x"), Tree("sin", [Tree("1")])]), Tree("y")]


class Scorer(torch.nn.Module):
    """A class for each of some trees, of given shapes and inner labels, from the symbols of their leaves."""

    def __init__(self, layer: TreeLayer, batch: TreeBatch) -> None:
        super().__init__()
        self.layer, self.head, self.batch = layer, ClassifierHead(layer.hidden_size, 2), batch

    def forward(self, symbol: torch.Tensor) -> torch.Tensor:
        schedule = dataclasses.replace(self.batch.schedule, symbol=symbol)
        return self.head(self.layer(TreeBatch(schedule, self.batch.vocabulary)))


def batch() -> TreeBatch:
    return TreeBatch.from_trees(TREES, VOCABULARY, share_subtrees=False)


def scorer(layer_class: type[TreeLayer], engine: Engine = "auto") -> Scorer:
    torch.manual_seed(0)
    return Scorer(layer_class(4, VOCABULARY, engine=engine), batch()).eval()


@pytest.mark.parametrize("layer_class", [TreeCell, StackTreeLSTM])
def test_an_exported_layer_gives_the_same_scores_for_other_symbols(layer_class: type[TreeLayer]) -> None:
    module, symbol = scorer(layer_class), batch().schedule.symbol
    program = torch.export.export(module, (symbol,)).module()
    for other in (symbol, symbol.flip(0), torch.full_like(symbol, 2)):
        torch.testing.assert_close(program(other), module(other))
    assert not torch.equal(module(symbol), module(torch.full_like(symbol, 2)))


def test_an_exported_layer_reads_other_features() -> None:
    trees = batch()
    layer = TreeLSTM(4, VOCABULARY, input_size=3, node_features=True).eval()

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, feat: torch.Tensor) -> torch.Tensor:
            return self.layer(trees, feat).root

    feat = torch.randn(trees.num_nodes, 3)
    program = torch.export.export(Encoder(), (feat,)).module()
    torch.testing.assert_close(program(2 * feat), layer(trees, 2 * feat).root)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("native", "the engine 'native' cannot run here: .*torch.export"),
        pytest.param("naive", "torch.export cannot follow the engine 'naive'", marks=needs_dgl),
    ],
)
def test_an_engine_that_an_export_cannot_follow_is_refused(engine: Engine, message: str) -> None:
    with pytest.raises(RecipeError, match=message + ".*; set the layer's engine to 'auto' or 'autograd'"):
        torch.export.export(scorer(TreeLSTM, engine), (batch().schedule.symbol,))
