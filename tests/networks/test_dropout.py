from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.nn import (
    LSTM,
    ONLSTM,
    RNN,
    ChildSumTreeLSTM,
    OrderedMemory,
    StackTreeLSTM,
    StackTreeRNN,
    Transformer,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeRNN,
)
from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LAYERS = [TreeRNN, TreeLSTM, ChildSumTreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM]
ON_LSTM_RATES = ("input_dropout", "dropout", "output_dropout", "weight_dropout")


@pytest.fixture
def batch() -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12), VOCABULARY)


@pytest.mark.parametrize("layer_class", LAYERS)
def test_dropout_is_in_training_only_and_follows_the_seed(layer_class: type[TreeLayer], batch: TreeBatch) -> None:
    layer = layer_class(4, VOCABULARY, dropout=0.5)
    without = layer_class(4, VOCABULARY)
    without.load_state_dict(layer.state_dict())
    expected = without(batch).root
    torch.testing.assert_close(layer.eval()(batch).root, expected)
    layer.train()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        layer.zero_grad()
        loss = layer(batch).root.sum()
        loss.backward()
        runs.append(torch.cat([loss.detach()[None], *(each.grad.flatten() for each in layer.cell.parameters())]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def tops(states: Any) -> torch.Tensor:
    return states.S[-1, 0]


@pytest.mark.parametrize(
    ("layer_class", "options", "dropped"),
    [
        (TreeRNN, {}, lambda states: states.h[-1]),  # the output
        (StackTreeRNN, {}, lambda states: states.h[-1]),
        (TreeLSTM, {}, lambda states: states.c[-1]),  # i * u, for a leaf's c is 0
        (ChildSumTreeLSTM, {}, lambda states: states.c[-1]),
        (StackTreeLSTM, {}, tops),  # a_push * u, for a leaf's stack is 0
        (StackTreeLSTM, {"normalize": "divide"}, tops),
    ],
)
def test_what_is_dropped_is_what_a_node_adds(layer_class: Any, options: dict[str, Any], dropped: Any) -> None:
    vocabulary = Vocabulary(["x"], [("f", 1)])
    batch = TreeBatch.from_trees([Tree("f", [Tree("x")])], vocabulary)
    layer = layer_class(400, vocabulary, dropout=0.25, **options)
    for engine in ("auto", REFERENCE):
        layer.engine = engine
        values = dropped(layer.train()(batch))
        kept = values != 0
        assert 0.65 < kept.float().mean() < 0.85
        torch.testing.assert_close(values[kept], (dropped(layer.eval()(batch)) / 0.75)[kept])


@pytest.mark.parametrize(
    ("layer_class", "options"),
    [
        (LSTM, {"update_dropout": 0.5}),
        (LSTM, {"num_layers": 2, "dropout": 0.5}),
        (LSTM, {"num_layers": 2, "dropout": 0.5, "engine": "naive"}),
        (RNN, {"dropout": 0.5}),
        *((Transformer, {"num_heads": 2, rate: 0.5}) for rate in ("dropout", "input_dropout")),
        *((ONLSTM, {"num_layers": 2, "chunk_size": 2, rate: 0.5}) for rate in ON_LSTM_RATES),
        *((OrderedMemory, {rate: 0.5}) for rate in ("dropout", "memory_dropout", "input_dropout")),
    ],
    ids=str,
)
def test_sequence_encoders_drop_in_training_only(layer_class: Any, options: dict[str, Any], batch: TreeBatch) -> None:
    layer = layer_class(4, VOCABULARY, **options)
    first, second = layer(batch).root, layer(batch).root
    assert not torch.equal(first, second)
    layer.eval()
    assert torch.equal(layer(batch).root, layer(batch).root)


@pytest.mark.parametrize("rates", [{"dropout": 0.4}, {"leaf_dropout": 0.4}, {"dropout": 0.5, "leaf_dropout": 0.3}])
@pytest.mark.parametrize("in_cpp", [False, True])
def test_a_tree_cell_with_the_same_random_numbers_is_the_same_on_every_engine(
    rates: dict[str, float], in_cpp: bool
) -> None:
    """All engines draw in the same order if a level has one node; in C++, which draws for all levels at once, if one
    node has children."""
    torch.manual_seed(0)
    layer = TreeCell(4, VOCABULARY, **rates).double()
    batch = TreeBatch.from_trees([chain(1 if in_cpp else 8)], VOCABULARY)
    found = {}
    for engine in (REFERENCE, *ENGINES):
        torch.manual_seed(7)
        with compile_steps(in_cpp):
            found[engine] = results(layer, batch, engine)
        assert_same(found[engine], found[REFERENCE], engine)
    layer.eval()
    assert not torch.equal(results(layer, batch, "auto")["root"], found["auto"]["root"])


def test_the_gradient_of_a_tree_cell_goes_through_what_was_not_dropped() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x"], [("f", 2)])
    inner = Tree("f", [Tree("x"), Tree("x")])
    batch = TreeBatch.from_trees([Tree("f", [inner, Tree("x")]), inner], vocabulary)
    layer = TreeCell(2, vocabulary, dropout=0.4, leaf_dropout=0.2, shared_kinds=True).double()
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(*values: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (batch,)).h

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


def test_a_tree_cell_that_drops_everything_learns_biases_only() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x"], [("f", 2)])
    everything = TreeCell(3, vocabulary, dropout=1.0).double()
    pair = TreeBatch.from_trees([Tree("f", [Tree("x"), Tree("x")])], vocabulary)
    for engine in ("auto", REFERENCE):
        everything.engine = engine  # type: ignore[assignment]
        everything.zero_grad()
        states = everything(pair)
        states.root.square().sum().backward()
        gates = everything.cell.gate_maps.of(2)
        assert not gates.weight.grad.any()
        assert gates.bias.grad.any()
        assert everything.cell.hidden_maps.of(2).bias.grad.isfinite().all()
