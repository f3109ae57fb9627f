"""Dropout acts in training only, follows the seed, and drops what each network says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import ENGINES, REFERENCE, assert_same, results
from tree_strategies import VOCABULARY, chain, random_forest

from treemem.networks import NetworkConfig
from treemem.nn import ChildSumTreeLSTM, StackTreeLSTM, StackTreeRNN, TreeCell, TreeLSTM, TreeRNN
from treemem.ops import compile_steps
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

ON_LSTM = {"num_layers": 2, "chunk_size": 2}
TWO_LAYERS = {"num_layers": 2}
OF_WORDS = ("input_dropout", "dropout", "output_dropout", "weight_dropout")
RATES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *(
        (name, {}, ("dropout",))
        for name in ("TreeRNN", "TreeLSTM", "ChildSumTreeLSTM", "StackTreeRNN", "StackTreeLSTM")
    ),
    ("TreeCell", {}, ("dropout", "leaf_dropout")),
    ("RNN", {}, ("dropout",)),
    ("LSTM", {}, ("update_dropout",)),
    ("LSTM", TWO_LAYERS, ("dropout",)),
    ("LSTM", {**TWO_LAYERS, "engine": "naive"}, ("dropout",)),
    ("Transformer", {"num_heads": 2}, ("dropout", "input_dropout")),
    ("OrderedMemory", {}, ("dropout", "memory_dropout", "input_dropout")),
    ("PRPN", {"slots": 3}, ("input_dropout", "dropout", "output_dropout", "recurrent_dropout")),
    ("ONLSTM", ON_LSTM, OF_WORDS),
    ("LanguageModel", ON_LSTM, (*OF_WORDS, "embedding_dropout")),
    ("LanguageModel", {**TWO_LAYERS, "cell": "LSTM"}, (*OF_WORDS, "embedding_dropout")),
    ("TransformerLanguageModel", {"layers": "1.superposition-3", "num_heads": 2}, ("dropout", "input_dropout")),
]


@pytest.mark.parametrize(
    ("name", "options", "rate"),
    [(name, options, rate) for name, options, rates in RATES for rate in rates],
    ids=str,
)
def test_dropout_is_in_training_only_and_follows_the_seed(name: str, options: dict[str, Any], rate: str) -> None:
    batch = TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12, widest=2), VOCABULARY)
    torch.manual_seed(0)
    config = NetworkConfig(name, {"hidden_size": 4, **options})
    network, plain = config.replace(**{rate: 0.5}).build(VOCABULARY), config.build(VOCABULARY)
    plain.load_state_dict(network.state_dict())
    if rate != "weight_dropout" or options is not ON_LSTM:  # whose weights are scaled in evaluation, as published
        torch.testing.assert_close(network.eval()(batch).outputs, plain.eval()(batch).outputs)
    assert torch.equal(network.eval()(batch).outputs, network(batch).outputs)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        network.train().zero_grad()
        outputs = network(batch).outputs
        outputs.sin().sum().backward()
        gradients = [each.grad.flatten() for each in network.parameters() if each.grad is not None]
        found.append(torch.cat([outputs.detach().flatten(), *gradients]))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


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


@pytest.mark.parametrize("rates", [{"dropout": 0.4}, {"dropout": 0.5, "leaf_dropout": 0.3}])
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


def test_a_tree_cell_that_drops_everything_learns_biases_only() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["x"], [("f", 2)])
    everything = TreeCell(3, vocabulary, dropout=1.0).double()
    pair = TreeBatch.from_trees([Tree("f", [Tree("x"), Tree("x")])], vocabulary)
    for engine in ("auto", REFERENCE):
        everything.engine = engine  # type: ignore[assignment]
        everything.zero_grad()
        everything(pair).root.square().sum().backward()
        gates = everything.cell.gate_maps.of(2)
        assert not gates.weight.grad.any()
        assert gates.bias.grad.any()
        assert everything.cell.hidden_maps.of(2).bias.grad.isfinite().all()
