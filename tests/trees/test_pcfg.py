"""Grammars: what they draw has the probability, the length and the entropy that the rules say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.trees.pcfg import Grammar, Rules

BINARY: Rules = {"S": [(3, ["a"]), (1, ["S", "S"])]}  # ambiguous: of four words there are five trees
NESTED: Rules = {"S": [(1, ["(", "S", ")", "S"]), (2, ["x"]), (1, ["T"])], "T": [(1, ["y"]), (1, ["z"])]}


def test_inside_probabilities_sum_over_all_derivations() -> None:
    grammar = Grammar(BINARY)
    for words, trees in zip(range(1, 6), (1, 1, 2, 5, 14), strict=True):
        assert grammar.num_derivations(["a"] * words) == trees
        expected = trees * 0.75**words * 0.25 ** (words - 1)
        assert grammar.log_probability(["a"] * words) == pytest.approx(math.log(expected), abs=1e-12)


def test_rules_with_one_part_may_lead_back_to_a_symbol() -> None:
    grammar = Grammar({"A": [(1, ["A"]), (1, ["B"]), (2, ["x"])], "B": [(1, ["A"]), (1, ["y"])]})
    probability = np.linalg.solve([[0.75, -0.25], [-0.5, 1.0]], [0.5, 0.0])[0]
    assert grammar.log_probability(["x"]) == pytest.approx(math.log(probability))
    certain = Grammar({"A": [(1, ["A"]), (1, ["x"])]})
    assert certain.log_probability(["x"]) == pytest.approx(0, abs=1e-12)
    for each in (grammar, certain):
        with pytest.raises(RecipeError, match="rules with one part lead from a symbol to itself"):
            each.num_derivations(["x"])


def test_sentences_that_are_not_of_the_grammar_have_no_probability() -> None:
    grammar = Grammar(NESTED)
    for words in ([], ["("], ["(", "x", ")"], ["x", "x"], ["w"]):
        assert grammar.log_probability(words) == -math.inf
        assert grammar.num_derivations(words) == 0
    assert grammar.log_probability(["(", "y", ")", "x"]) == pytest.approx(math.log(0.25 * 0.25 * 0.5 * 0.5))


def test_probabilities_of_short_sentences_sum_to_their_share() -> None:
    grammar = Grammar(NESTED)
    words = ("(", ")", "x", "y", "z")
    total = sum(
        math.exp(grammar.log_probability(text)) for length in (1, 4) for text in itertools.product(words, repeat=length)
    )
    assert total == pytest.approx(0.75 + 0.25 * 0.75**2)


def test_sentences_do_not_underflow_however_rare() -> None:
    rare = Grammar({"S": [(1e-12, ["(", "S", ")", "S"]), (1, ["x"])]})
    expected = 30 * math.log(1e-12)
    assert math.exp(expected) == 0
    assert rare.log_probability([*["(", "x", ")"] * 30, "x"]) == pytest.approx(expected)


def test_symbols_of_one_span_may_differ_by_any_factor() -> None:
    rules = {
        "S": [(1, ["A", "x"]), (1, ["B", "y"])],
        "A": [(0.5, ["a", "A"]), (0.5, ["a"])],
        "B": [(0.001, ["a", "B"]), (0.499, ["c", "B"]), (0.5, ["a"])],
    }
    expected = 2 * math.log(0.5) + 129 * math.log(0.001)
    assert Grammar(rules).log_probability([*["a"] * 130, "y"]) == pytest.approx(expected)
    rare = Grammar({"S": [(1, ["a", "T"])], "T": [(1e-200, ["a", "T"]), (1, ["b"])]})
    assert rare.log_probability(list("aaab")) == pytest.approx(2 * math.log(1e-200))


def test_more_derivations_than_numbers_count_exactly_are_refused() -> None:
    grammar = Grammar({"S": [(0.4, ["S", "S"]), (0.6, ["a"])]})
    assert grammar.num_derivations(["a"] * 25) == 1289904147324
    for count in (40, 550):
        with pytest.raises(RecipeError, match=r"more than 2\^53 derivations"):
            grammar.num_derivations(["a"] * count)


def test_entropy_and_length_are_the_means_over_sentences() -> None:
    grammar = Grammar(NESTED)
    # S has 1 rule of 4 parts with 2 words and 2 S, by weight 1/4: H = H(1/4, 1/2, 1/4) + H(T) / 4 + 2 H / 4
    assert grammar.entropy == pytest.approx(2 * (1.5 + 0.25) * math.log(2))
    assert grammar.mean_length == pytest.approx(2 * (0.25 * 2 + 0.75))
    sentences = grammar.draw(20_000, seed=0)
    surprise = np.array([-sentence.log_probability for sentence in sentences])
    length = np.array([len(sentence.words) for sentence in sentences])
    for sample, mean in ((surprise, grammar.entropy), (length, grammar.mean_length)):
        assert abs(sample.mean() - mean) < 4 * sample.std() / math.sqrt(len(sample))
    assert grammar.perplexity == pytest.approx(math.exp(3.5 * math.log(2) / 3.5))


def test_the_probability_of_a_drawn_sentence_is_that_of_its_derivation() -> None:
    grammar = Grammar(NESTED)
    for sentence in grammar.draw(200, seed=1):
        assert grammar.log_probability(sentence.words) == pytest.approx(sentence.log_probability, abs=1e-9)


def test_trees_have_the_words_and_no_node_of_one_part() -> None:
    grammar = Grammar(
        {"S[x]": [(1, ["NP", "V"])], "NP": [(1, ["N"]), (1, ["d", "N"])], "N": [(1, ["n"])], "V": [(1, ["v"])]}
    )
    sentences = grammar.draw(30, seed=0)
    forest = grammar.forest(sentences)
    assert {str(tree) for tree in forest} == {"(S n v)", "(S (NP d n) v)"}
    assert [tuple(leaf.label for leaf in tree.leaves()) for tree in forest] == [each.words for each in sentences]
    assert forest.tree_data["log_probability"].tolist() == [math.log(0.5)] * 30


@pytest.mark.parametrize(
    ("rules", "start", "message"),
    [
        ({"S": [(1, ["S", "S"]), (1, ["a"])]}, None, "no finite mean length"),
        ({"S": [(1, ["S"])]}, None, "no finite mean length"),
        ({"S": []}, None, "'S' needs rules"),
        ({"S": [(0, ["a"])]}, None, "weights above 0"),
        ({"S": [(1, [])]}, None, "at least one part"),
        ({"S": [(1, ["a"])]}, "T", "start symbol 'T' has no rules"),
    ],
)
def test_wrong_rules_are_refused(rules: Rules, start: str | None, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Grammar(rules, start)
