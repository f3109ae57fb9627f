"""Sentences of the grammar as data: splits without common sentences, and what a model can reach on them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treemem.tasks.language_modeling.data import (
    LanguageDataOptions,
    best_perplexity,
    draw_sentences,
    grammar_data,
    with_ends,
)
from treemem.tasks.language_modeling.generation.english import english_grammar
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

OPTIONS = LanguageDataOptions(3000, 300, 200, seed=5)


def words_of(forest: Forest) -> list[tuple[str, ...]]:
    return [tuple(leaf.label for leaf in tree.leaves()) for tree in forest]


def test_no_sentence_is_in_two_splits_and_each_has_its_size() -> None:
    forest = draw_sentences(english_grammar(120), OPTIONS)
    split = forest.tree_data["split"]
    assert [int((split == name).sum()) for name in ("train", "validation", "test")] == [3000, 300, 200]
    words = words_of(forest)
    of_split = {name: {each for each, own in zip(words, split, strict=True) if own == name} for name in set(split)}
    assert sum(map(len, of_split.values())) == len(set(words)) < len(words)


def test_the_perplexity_of_a_split_is_that_of_its_sentences() -> None:
    grammar = english_grammar(120)
    forest = draw_sentences(grammar, LanguageDataOptions(20, 5, 30, seed=1))
    own = [words for words, split in zip(words_of(forest), forest.tree_data["split"], strict=True) if split == "test"]
    expected = math.exp(-sum(map(grammar.log_probability, own)) / sum(len(words) + 1 for words in own))
    assert best_perplexity(forest, "test") == pytest.approx(expected, abs=1e-9)


def test_the_card_says_what_a_model_can_reach() -> None:
    data = grammar_data(200, OPTIONS)
    grammar = english_grammar(200)
    assert f"least perplexity is {grammar.perplexity:.2f}" in data.card
    row = next(line for line in data.card.splitlines() if line.startswith("| test"))
    cells = row.strip("| ").split(" | ")
    test = data.forest[data.forest.tree_data["split"] == "test"]
    assert cells[1:3] == ["200", str(int((test.arity == 0).sum()))]
    assert float(cells[4]) == pytest.approx(best_perplexity(data.forest, "test"), abs=0.005)
    assert abs(best_perplexity(data.forest, "train") / grammar.perplexity - 1) < 0.05


def test_ends_are_added_to_the_words_of_any_trees() -> None:
    trees = Forest.from_trees([Tree("S", [Tree("NP", [Tree("the"), Tree("cat")]), Tree("sat")]), Tree("yes")])
    ended = with_ends(trees, begin=False)
    assert ended.is_flat
    assert ended.tokens("leaves").strings() == [["the", "cat", "sat", "<eos>"], ["yes", "<eos>"]]
    flat = Forest.from_sequences([["a"], [], ["<eos>", "b"]]).with_data(tree_data={"split": np.array(["train"] * 3)})
    ended = with_ends(flat, begin=True)
    assert ended.tokens("leaves").strings() == [
        ["<eos>", "a", "<eos>"],
        ["<eos>", "<eos>"],
        ["<eos>", "<eos>", "b", "<eos>"],
    ]
    assert ended.tree_data["split"].tolist() == ["train"] * 3
