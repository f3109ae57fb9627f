from __future__ import annotations

import pytest
import torch
from induction.random_trees import leaves
from tree_strategies import VOCABULARY as RANDOM_VOCABULARY
from tree_strategies import random_forest

from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.induction import induced_trees, remove_brackets, tree_from_distances, tree_from_pointer_probabilities
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.nn import RNN, OrderedMemory, TreeRNN
from treemem.nn.sequence_encoder import Reading, SequenceEncoder
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.listops import ListOps
from treemem.trees.brackets import parse_brackets
from treemem.trees.forest import Forest
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["a", "b", "not"], [("X", 2)])
TREES = [parse_brackets("(X a (X not b))"), Tree("b"), parse_brackets("(X (X a b) (X a not))")]
BATCH = TreeBatch.from_trees(TREES, VOCABULARY)


class StandIn(SequenceEncoder):
    """Traces given values for the tokens of a batch; has dropout while it trains."""

    def __init__(self, trace: dict[str, torch.Tensor], form: TokenForm = "leaves") -> None:
        super().__init__(2, VOCABULARY, {"form": form})
        self.values = trace
        self.frozen = torch.nn.Dropout().eval()

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> Reading:
        assert not torch.is_grad_enabled()
        assert not self.training
        return Reading(inputs[:, 0], inputs, self.values if trace else {})


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_pointers_give_a_tree_for_each_sequence_over_its_tokens() -> None:
    pointers = draw(3, 4, 5)
    pointers[:, 0] = 0
    found = induced_trees(StandIn({"pointers": pointers}), BATCH)
    assert [leaves(tree) for tree in found] == [["a", "not", "b"], ["b"], ["a", "b", "a", "not"]]
    for tree, probabilities in zip(found, pointers, strict=True):
        words = leaves(tree)
        assert tree == tree_from_pointer_probabilities(probabilities[: len(words)], words)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_a_memory_traces_makes_the_same_trees_with_its_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    encoder = OrderedMemory(4, VOCABULARY, slots=3, form="leaves").to(dtype)
    pointers = encoder(BATCH, trace=True).trace["pointers"]
    assert pointers.requires_grad
    for values, tree in zip(pointers, induced_trees(encoder, BATCH), strict=True):
        words = leaves(tree)
        assert tree_from_pointer_probabilities(values[: len(words)], words) == tree
        distances = values[: len(words), 0]
        assert tree_from_distances(distances, words) == tree_from_distances(distances.tolist(), words)


def test_trees_of_any_number_are_read_in_batches_and_give_what_one_batch_gives() -> None:
    torch.manual_seed(0)
    encoder = OrderedMemory(4, VOCABULARY, slots=3, form="leaves")
    whole = induced_trees(encoder, BATCH)
    for sentences in (TREES, iter(TREES), Forest.from_trees(TREES)):
        assert induced_trees(encoder, sentences, sentences_at_once=2) == whole
    assert induced_trees(encoder, TREES) == whole
    assert induced_trees(encoder, []) == []
    with pytest.raises(VocabularyError, match="or"):
        induced_trees(encoder, [parse_brackets("(X a or)")])
    with pytest.raises(RecipeError, match="sentences_at_once must be at least 1"):
        induced_trees(encoder, TREES, sentences_at_once=0)


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


def test_a_sequence_that_cannot_be_read_is_named_by_its_number_among_all() -> None:
    class BrokenForOneWord(StandIn):
        def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> Reading:
            pointers = torch.rand(*inputs.shape[:2], 2)
            pointers[lengths == 1] = torch.nan
            return Reading(inputs[:, 0], inputs, {"pointers": pointers})

    with pytest.raises(GraphError, match="sequence 3: "):
        induced_trees(BrokenForOneWord({}), [TREES[0], TREES[2], TREES[0], TREES[1]], sentences_at_once=2)


def test_distances_are_of_the_second_layer_unless_another_is_asked_for() -> None:
    encoder = StandIn({"forget_distance": draw(3, 3, 4), "input_distance": draw(3, 3, 4).flip(2)})

    def expected(gate: str, layer: int) -> list[Tree]:
        own = encoder.values[f"{gate}_distance"][:, layer]
        words = [leaves(tree) for tree in TREES]
        return [tree_from_distances(row[: len(w)], w) for row, w in zip(own, words, strict=True)]

    assert induced_trees(encoder, BATCH) == expected("forget", 1)
    assert induced_trees(encoder, BATCH, layer=0, gate="input") == expected("input", 0)
    assert expected("forget", 1) not in (expected("forget", 0), expected("input", 0), expected("input", 1))
    single = StandIn({"forget_distance": draw(3, 1, 4)})
    assert induced_trees(single, BATCH) == induced_trees(single, BATCH, layer=0)


def test_brackets_that_were_tokens_are_leaves_until_they_are_removed() -> None:
    encoder = StandIn({"pointers": draw(3, 11, 5).float()}, form="bracketed leaves")
    found = induced_trees(encoder, BATCH)
    assert leaves(found[0]) == ["(", "a", "(", "not", "b", ")", ")"]
    assert [leaves(remove_brackets(tree)) for tree in found] == [leaves(tree) for tree in TREES]


def test_both_sides_of_a_pair_have_a_tree() -> None:
    batch = TreeBatch.from_trees([TREES[0], TREES[1], TREES[2], TREES[1]], VOCABULARY, trees_per_example=2)
    found = induced_trees(StandIn({"pointers": draw(4, 4, 2)}), batch)
    assert [leaves(tree) for tree in found] == [leaves(tree) for tree in (TREES[0], TREES[1], TREES[2], TREES[1])]


def test_a_root_that_joins_two_sentences_is_told_to_give_them() -> None:
    pair = Tree("pair", TREES[:2])
    encoder = OrderedMemory(4, VOCABULARY, slots=3, form="leaves")
    with pytest.raises(VocabularyError, match=r"'pair'; if 'pair' joins sentences, .* give its \.children"):
        induced_trees(encoder, [TREES[2], pair])
    assert [leaves(tree) for tree in induced_trees(encoder, pair.children)] == [["a", "not", "b"], ["b"]]
    with pytest.raises(VocabularyError) as caught:
        induced_trees(encoder, [parse_brackets("(X a or)")])
    assert "children" not in str(caught.value)


def test_the_encoder_is_left_in_the_mode_it_was_in() -> None:
    encoder = StandIn({"pointers": draw(3, 4, 2)})
    assert encoder.training
    assert not encoder.frozen.training
    induced_trees(encoder, BATCH)
    assert encoder.training
    assert not encoder.frozen.training


def test_an_encoder_without_a_trace_is_told() -> None:
    with pytest.raises(RecipeError, match="RNN traces nothing; trees are read out of the pointers of OrderedMemory"):
        induced_trees(RNN(4, VOCABULARY, form="leaves"), BATCH)
    whole = Model(ListOps(), NetworkConfig("OrderedMemory", {"hidden_size": 4}))
    with pytest.raises(RecipeError, match=r"Model is no sequence encoder; give its \.encoder; trees are read out of"):
        induced_trees(whole, BATCH)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="TreeRNN is no sequence encoder; trees are read out of"):
        induced_trees(TreeRNN(4, VOCABULARY), BATCH)
    with pytest.raises(RecipeError, match="StandIn traces gates, states; trees are read"):
        induced_trees(StandIn({"gates": draw(1), "states": draw(1)}), BATCH)


def test_a_layer_that_is_not_there_is_told() -> None:
    with pytest.raises(RecipeError, match="StandIn has no layer 2; its layers are 0 to 1"):
        induced_trees(StandIn({"forget_distance": draw(3, 2, 4)}), BATCH, layer=2)
    with pytest.raises(RecipeError, match="layer=2 was asked for, but the pointers of StandIn have no layers"):
        induced_trees(StandIn({"pointers": draw(3, 4, 2)}), BATCH, layer=2)
    for layer, problem in ((-1, "layer must be at least 0, not -1"), ("1", "layer must be a whole number, not '1'")):
        with pytest.raises(RecipeError, match=problem):
            induced_trees(StandIn({"forget_distance": draw(3, 2, 4)}), [], layer=layer)  # type: ignore[arg-type]


def test_values_that_make_no_tree_are_told() -> None:
    broken = draw(3, 4, 2)
    broken[2, 3, 1] = float("nan")
    with pytest.raises(GraphError, match=r"sequence 2: the probabilities at token 3 \('not'\) are not finite"):
        induced_trees(StandIn({"pointers": broken}), BATCH)
    with pytest.raises(GraphError, match="StandIn traced 2 sequences of other lengths than the 3 of the batch"):
        induced_trees(StandIn({"pointers": draw(2, 4, 2)}), BATCH)
    with pytest.raises(RecipeError, match=r"the pointers that StandIn traces must have 3 dimensions, not \[3, 4\]"):
        induced_trees(StandIn({"pointers": draw(3, 4)}), BATCH)
    with pytest.raises(RecipeError, match="gate='output' is none of forget, input"):
        induced_trees(StandIn({"forget_distance": draw(3, 2, 4)}), BATCH, gate="output")
