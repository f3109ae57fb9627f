from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from induction.random_trees import leaves
from tree_strategies import VOCABULARY as RANDOM_VOCABULARY
from tree_strategies import random_forest

from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.induction import (
    induced_trees,
    remove_brackets,
    tree_from_distances,
    tree_from_pointer_probabilities,
    tree_from_splits,
)
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.nn import (
    DIORA,
    ONLSTM,
    RNN,
    SPINN,
    BeamTreeGRC,
    CRvNN,
    DisjointTreeLSTM,
    EfficientBeamTreeGRC,
    GumbelTreeLSTM,
    OrderedMemory,
    RRNet,
    TreeRNN,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.listops import ListOps
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "not"], [("X", 2)])
TREES = [parse_brackets("(X a (X not b))"), Tree("b"), parse_brackets("(X (X a b) (X a not))")]
BATCH = TreeBatch.from_trees(TREES, VOCABULARY)


def memory(form: str = "leaves") -> OrderedMemory:
    torch.manual_seed(0)
    return OrderedMemory(4, VOCABULARY, slots=3, form=form)


def on_lstm(num_layers: int) -> ONLSTM:
    torch.manual_seed(0)
    encoder = ONLSTM(6, VOCABULARY, num_layers=num_layers, chunk_size=2, form="leaves")
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.mul_(4)  # so that layers and gates differ
    return encoder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pointers_with_gradients_give_a_tree_for_each_sequence_over_its_tokens(dtype: torch.dtype) -> None:
    encoder = memory().to(dtype)
    pointers = encoder(BATCH, trace=True).trace["pointers"]
    assert pointers.requires_grad
    found = induced_trees(encoder, BATCH)
    assert [leaves(tree) for tree in found] == [["a", "not", "b"], ["b"], ["a", "b", "a", "not"]]
    for values, tree in zip(pointers, found, strict=True):
        words = leaves(tree)
        assert tree_from_pointer_probabilities(values[: len(words)], words) == tree


def test_trees_of_any_number_are_read_in_batches_and_give_what_one_batch_gives() -> None:
    encoder = memory()
    whole = induced_trees(encoder, BATCH)
    for sentences in (TREES, iter(TREES), Forest.from_trees(TREES)):
        assert induced_trees(encoder, sentences, sentences_at_once=2) == whole
    assert induced_trees(encoder, []) == []
    with pytest.raises(VocabularyError, match="or"):
        induced_trees(encoder, [parse_brackets("(X a or)")])


def test_an_encoder_that_pads_on_the_left_parses_each_sequence_as_if_alone() -> None:
    sentences = list(random_forest(seed=3, num_trees=8, size=12))
    changed = 0
    for seed in range(4):
        torch.manual_seed(seed)
        encoder = OrderedMemory(4, RANDOM_VOCABULARY, slots=3, padding="left")
        with torch.no_grad():
            for weight in encoder.parameters():
                weight.mul_(3)  # pointers that are sharp enough to differ
        alone = [induced_trees(encoder, [sentence])[0] for sentence in sentences]
        assert induced_trees(encoder, sentences) == alone
        assert encoder.padding == "left"
        traced = encoder.eval()(TreeBatch.from_trees(sentences, RANDOM_VOCABULARY), trace=True).trace["pointers"]
        words = [leaves(tree) for tree in alone]
        in_batch = [
            tree_from_pointer_probabilities(pointers[: len(own)], own)
            for pointers, own in zip(traced.detach(), words, strict=True)
        ]
        changed += in_batch != alone
    assert changed, "in a batch the padding matters"


def test_distances_are_of_the_second_layer_unless_another_is_asked_for() -> None:
    encoder = on_lstm(2)
    trace = encoder(BATCH, trace=True).trace

    def expected(gate: str, layer: int) -> list[Tree]:
        words = [leaves(tree) for tree in TREES]
        own = trace[f"{gate}_distance"][:, layer]
        return [tree_from_distances(row[: len(w)], w) for row, w in zip(own, words, strict=True)]

    assert induced_trees(encoder, BATCH) == expected("forget", 1)
    assert induced_trees(encoder, BATCH, layer=0, gate="input") == expected("input", 0)
    assert expected("forget", 1) != expected("input", 0)
    single = on_lstm(1)
    assert induced_trees(single, BATCH) == induced_trees(single, BATCH, layer=0)


@pytest.mark.parametrize("network", [EfficientBeamTreeGRC, BeamTreeGRC])
def test_a_beam_gives_its_likeliest_tree(network: Any) -> None:
    torch.manual_seed(1)
    encoder = network(4, VOCABULARY, form="leaves", beam_size=2)
    joined = encoder.eval()(BATCH, trace=True).trace["joined"]
    found = induced_trees(encoder.train(), BATCH)
    check_joined(joined, found)


def check_joined(joined: torch.Tensor, found: list[Tree]) -> None:
    assert [leaves(tree) for tree in found] == [["a", "not", "b"], ["b"], ["a", "b", "a", "not"]]
    for values, tree in zip(joined, found, strict=True):
        words = leaves(tree)
        assert tree_from_splits(values[: len(words)], words) == tree


@pytest.mark.parametrize(
    "network", [GumbelTreeLSTM, CRvNN, DIORA, partial(SPINN, transitions="reinforced"), DisjointTreeLSTM, RRNet]
)
def test_a_network_that_composes_step_by_step_gives_its_tree(network: Any) -> None:
    torch.manual_seed(1)
    encoder = network(4, VOCABULARY, form="leaves")
    joined = encoder.eval()(BATCH, trace=True).trace["joined"]
    check_joined(joined, induced_trees(encoder.train(), BATCH))
    with torch.no_grad():
        encoder.embedding.weight[VOCABULARY.leaves.index("not")] = torch.nan
    with pytest.raises(GraphError, match=r"sequence 2: the value of token 0 \('a'\)"):
        induced_trees(encoder, [Tree("a"), Tree("b"), TREES[2]])


def test_gold_transitions_give_the_trees_of_the_batch() -> None:
    encoder = SPINN(4, VOCABULARY, form="leaves", transitions="gold", tracker_size=0)
    found = induced_trees(encoder, BATCH)
    binary = Vocabulary(["a", "b"], [("f", 2)])
    trees = [Tree("f", [Tree("f", [Tree("a"), Tree("b")]), Tree("a")]), Tree("b")]
    own = SPINN(4, binary, form="leaves", transitions="gold")
    assert [str(tree) for tree in induced_trees(own, trees)] == ["(X (X a b) a)", "b"]
    assert [leaves(tree) for tree in found] == [leaves(tree) for tree in TREES]


def test_brackets_that_were_tokens_are_leaves_until_they_are_removed() -> None:
    found = induced_trees(memory("bracketed leaves"), BATCH)
    assert leaves(found[0]) == ["(", "a", "(", "not", "b", ")", ")"]
    assert [leaves(remove_brackets(tree)) for tree in found] == [leaves(tree) for tree in TREES]


def test_both_sides_of_a_pair_have_a_tree() -> None:
    pairs = [TREES[0], TREES[1], TREES[2], TREES[1]]
    found = induced_trees(memory(), TreeBatch.from_trees(pairs, VOCABULARY, trees_per_example=2))
    assert [leaves(tree) for tree in found] == [leaves(tree) for tree in pairs]


def test_a_root_that_joins_two_sentences_is_told_to_give_them() -> None:
    pair = Tree("pair", TREES[:2])
    with pytest.raises(VocabularyError, match=r"'pair'; .*if 'pair' joins sentences, .* give its \.children"):
        induced_trees(memory(), [TREES[2], pair])
    assert [leaves(tree) for tree in induced_trees(memory(), pair.children)] == [["a", "not", "b"], ["b"]]


def test_the_encoder_is_left_in_the_mode_it_was_in() -> None:
    for training in (True, False):
        encoder = memory().train(training)
        induced_trees(encoder, BATCH)
        assert encoder.training == training


def test_what_does_not_induce_trees_is_told() -> None:
    whole = Model(ListOps(), NetworkConfig("OrderedMemory", {"hidden_size": 4}))
    rnn = RNN(4, VOCABULARY, form="leaves")
    for encoder, options, named in (
        (rnn, {}, r"RNN does not induce trees; networks .* do, such as OrderedMemory, ONLSTM"),
        (whole, {}, r"Model does not induce trees; give its \.encoder"),
        (TreeRNN(4, VOCABULARY), {}, "TreeRNN does not induce trees"),
        (on_lstm(2), {"layer": 2}, "ONLSTM has no layer 2; its layers are 0 to 1"),
        (on_lstm(2), {"gate": "output"}, "gate='output'"),
    ):
        with pytest.raises(RecipeError, match=named):
            induced_trees(encoder, BATCH, **options)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: memory(), r"the probabilities at token 3 \('not'\)"),
        (lambda: EfficientBeamTreeGRC(4, VOCABULARY, form="leaves"), r"the value of token 0 \('a'\)"),
    ],
)
def test_values_that_are_not_finite_name_the_sentence(make: Any, named: str) -> None:
    encoder = make()
    with torch.no_grad():
        encoder.embedding.weight[VOCABULARY.leaves.index("not")] = torch.nan
    with pytest.raises(GraphError, match=rf"begins with sentence 2: sequence 0: {named}"):
        induced_trees(encoder, [Tree("a"), Tree("b"), TREES[2]], sentences_at_once=2)
