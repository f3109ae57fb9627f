"""The English grammar: it is unambiguous, and minimal pairs have one sentence of it and one that is not."""

from __future__ import annotations

from collections import Counter

import pytest

from treemem.tasks.language_modeling.generation.english import CONSTRUCTIONS, english_grammar, minimal_pairs


@pytest.mark.parametrize(
    ("sentence", "is_grammatical"),
    [
        ("the boy near the girls laughs", True),
        ("the boy near the girls laugh", False),
        ("the boy that the girls see laughs", True),
        ("the boy the girls see laughs", True),
        ("the boys that sees the girl laugh", False),
        ("the boy says that the girls laugh", True),
        ("the boy says the girls laughs", False),
        ("the boy laughs and see the girls", False),
        ("the girls like herself", False),
        ("the boy likes herself", False),
        ("no boy ever laughs", True),
        ("the boy ever laughs", False),
        ("the boy that no girl sees ever laughs", False),
        ("no boy that the girl sees ever laughs", True),
    ],
)
def test_constructions_that_the_grammar_has(sentence: str, is_grammatical: bool) -> None:
    assert english_grammar(200).num_derivations(sentence.split()) == int(is_grammatical)


def test_sentences_have_one_derivation() -> None:
    grammar = english_grammar(120)
    drawn = [sentence for sentence in grammar.draw(1500, seed=2) if len(sentence.words) <= 25]
    lengths = Counter(len(sentence.words) for sentence in drawn)
    chosen = sorted(drawn, key=lambda sentence: -len(sentence.words))[:15] + drawn[:45]
    assert lengths[3]
    assert max(lengths) > 20
    for sentence in chosen:
        assert grammar.num_derivations(sentence.words) == 1, sentence.words
        assert grammar.log_probability(sentence.words) == pytest.approx(sentence.log_probability, abs=1e-9)


@pytest.mark.parametrize("words", [100, 333, 1000, 10_000])
def test_the_grammar_has_about_as_many_words_as_asked(words: int) -> None:
    assert abs(len(english_grammar(words).words) - words) <= 0.05 * words


def test_of_a_minimal_pair_the_grammar_has_the_good_sentence_alone() -> None:
    grammar = english_grammar(300)
    pairs = minimal_pairs(grammar, 12, seed=1)
    assert Counter(pair.construction for pair in pairs) == dict.fromkeys(CONSTRUCTIONS, 12)
    assert len(set(pairs)) == len(pairs)
    for pair in pairs:
        assert grammar.num_derivations(pair.good) == 1, pair
        assert grammar.num_derivations(pair.bad) == 0, pair
        assert len(pair.good) == len(pair.bad)
        different = sum(good != bad for good, bad in zip(pair.good, pair.bad, strict=True))
        assert different == (2 if pair.construction.endswith("relative with no") else 1)
    assert minimal_pairs(grammar, 12, seed=1) == pairs != minimal_pairs(grammar, 12, seed=2)


def test_some_pairs_have_an_attractor_and_some_have_none() -> None:
    pairs = minimal_pairs(english_grammar(300), 40)
    chosen = [pair for pair in pairs if pair.construction == "agreement: across a prepositional phrase"]
    is_plural = [[word in ("some", "these", "many") for word in (pair.good[0], pair.good[3])] for pair in chosen]
    assert {tuple(each) for each in is_plural} == {(False, False), (False, True), (True, False), (True, True)}
