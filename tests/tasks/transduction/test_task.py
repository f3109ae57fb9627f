"""Pairs, their grammars, and how what was written is scored."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.task.sequences import Written
from treemem.tasks.transduction import Transduction, TransductionDataOptions
from treemem.tasks.transduction.grammars import DRAWS, GENDER, SVO_SOV, Grammar, Kind, has_length, symbols_of
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

SMALL = TransductionDataOptions(40, 10, 10, (3, 6), (3, 9), seed=3)
NETWORK = NetworkConfig("SequenceToSequence", {"hidden_size": 16, "memory": "stack", "memory_size": 8})
KINDS = get_args(Kind)
EXAMPLES = {
    "svo_sov": (
        "si1 vi28 oi5 oi7 si15 rpi si19 vi16 oi10 oi24",
        "so1 oo5 oo7 so15 rpo so19 vo16 oo10 oo24 vo28",
    ),
    "gender": ("we11 the en19 and the em17", "wg11 das gn19 und der gm17"),
}
"""The published examples."""


def flipped(words: list[str]) -> list[str]:
    return [word for place in range(0, len(words), 2) for word in reversed(words[place : place + 2])]


def verb_last(words: list[str]) -> list[str]:
    """Find the main verb by reading the sentence, and move it to the end."""
    sorts = [word.rstrip("0123456789") for word in words]

    def subject(place: int) -> int:
        assert sorts[place] == "si"
        return clause(place + 2)[1] if sorts[place + 1] == "rpi" else place + 1

    def clause(place: int) -> tuple[int, int]:
        """The places of the verb and of the end of a clause."""
        verb = subject(place)
        assert sorts[verb : verb + 2] == ["vi", "oi"]
        end = verb + 1
        while sorts[end : end + 1] == ["oi"]:
            end += 1
        if sorts[end : end + 1] == ["si"]:
            assert sorts[end + 1] == "rpi"
            end = subject(end)
        return verb, end

    verb, end = clause(0)
    assert end == len(words)
    moved = [*words[:verb], *words[verb + 1 :], words[verb]]
    return [re.sub(r"^(s|v|o|rp)i", r"\1o", word) for word in moved]


def agreeing(words: list[str]) -> list[str]:
    sorts = " ".join(word.rstrip("0123456789") for word in words)
    phrase = r"the( we)* e[nmf]"
    assert re.fullmatch(rf"((^| )we( we)* {phrase}( and {phrase})*)+", sorts)
    found: list[str] = []
    for place, word in enumerate(words):
        if word == "the":
            noun = next(other for other in words[place + 1 :] if not other.startswith("we"))
            found.append({"n": "das", "m": "der", "f": "die"}[noun[1]])
        elif word == "and":
            found.append("und")
        else:
            found.append(f"w{word.replace('e', 'g')[1:]}" if word.startswith("we") else f"g{word[1:]}")
    return found


def recalled(words: list[str]) -> list[str]:
    *items, query = [each.split() for each in re.split(r"[;?]", " ".join(words))[1:]]
    return items[items.index(query) + 1]


def by_priority(words: list[str]) -> list[str]:
    """Take the earliest of the highest priorities, again and again."""
    left = [(int(priority[1:]), symbol) for symbol, priority in zip(words[::2], words[1::2], strict=True)]
    found = []
    for _ in range(-(-len(left) * 3 // 4)):
        best = max(left, key=lambda pair: pair[0])
        found.append(left.pop(left.index(next(pair for pair in left if pair[0] == best[0])))[1])
    return found


TRANSDUCE = {
    "copy": list,
    "reversal": lambda words: words[::-1],
    "bigram_flip": flipped,
    "associative_recall": recalled,
    "priority_sort": by_priority,
    "svo_sov": verb_last,
    "gender": agreeing,
}
"""Each kind as a function of the source, apart from its derivation."""


def test_sentences_are_as_long_as_their_grammar_makes_them() -> None:
    """With ``a`` and then nothing or a sentence, half each, a sentence of one word more is half as likely."""
    chances = Grammar("0.5 sentence -> [a/b]\n0.5 sentence -> [a/b sentence]\n").length_chances([1, 2, 3])
    np.testing.assert_allclose(chances, [4 / 7, 2 / 7, 1 / 7])
    task = Transduction("svo_sov", 30)
    options = replace(SMALL, training_size=400, train_lengths=(3, 60), lengths="grammar")
    trees = task.make_data(options).forest
    length = np.array([len(record["source"].split()) for record in task.records_of(trees[:400])])
    assert 0.4 < (length <= 8).mean() < 0.6  # 51 % of all sentences
    with pytest.raises(RecipeError, match="copy has no grammar, so set uniform"):
        Transduction("copy", 8).make_data(options)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_published_pairs_are_pairs_of_the_grammars(kind: Kind) -> None:
    source, target = (side.split() for side in EXAMPLES[kind])
    assert TRANSDUCE[kind](source) == target
    assert set(source) <= set(symbols_of(kind, 128)[0])
    assert set(target) <= set(symbols_of(kind, 128)[1])


@pytest.mark.parametrize("kind", KINDS)
@given(length=st.integers(3, 60), alphabet=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_source_and_target_of_a_derivation_fit_together(kind: Kind, length: int, alphabet: int, seed: int) -> None:
    length = next(each for each in range(length, length + 12) if has_length(kind, each))
    source, target = DRAWS[kind](length, alphabet, np.random.default_rng(seed))
    assert len(source) == length
    assert target == TRANSDUCE[kind](source)
    symbols = symbols_of(kind, alphabet)
    assert set(source) <= set(symbols[0])
    assert set(target) <= set(symbols[1])


@pytest.mark.parametrize("text", [SVO_SOV, GENDER])
def test_the_probabilities_of_each_left_hand_side_sum_to_one(text: str) -> None:
    for rules in Grammar(text).rules.values():
        assert sum(rule.probability for rule in rules) == pytest.approx(1)


def test_a_length_does_not_change_how_likely_its_derivations_are() -> None:
    grammar, generator = Grammar("0.5 s -> [a/x]\n0.3 s -> [a/x s]\n0.2 s -> <b/y s>"), np.random.default_rng(1)
    drawn = [" ".join(grammar.draw(3, 1, generator)[1]) for _ in range(4000)]
    assert set(drawn) == {"x x x", "x x y", "x y y"}
    assert drawn.count("x x x") / 4000 == pytest.approx(0.09 / 0.25, abs=0.03)
    assert drawn.count("x y y") / 4000 == pytest.approx(0.04 / 0.25, abs=0.03)
    with pytest.raises(RecipeError, match="no source of 2 symbols"):
        Grammar("1.0 s -> [a/x]").draw(2, 1, generator)


def test_data_have_their_sizes_and_longer_sources_to_test() -> None:
    task = Transduction("reversal", alphabet=5)
    records = list(task.records_of(task.make_data(SMALL).forest))
    lengths = {name: [r["length"] for r in records if r["split"] == name] for name in ("train", "validation", "test")}
    assert [len(each) for each in lengths.values()] == [40, 10, 10]
    assert max(lengths["train"]) <= 6 < max(lengths["test"])
    with pytest.raises(RecipeError, match=r"only .* have a source that no other pair has"):
        Transduction("copy", alphabet=1).make_data(SMALL)


def test_a_target_counts_up_to_its_first_error() -> None:
    task = Transduction("copy", alphabet=4)
    kept = [Written([*each], [*"234"], 0) for each in ("234", "334", "23", "2345", "", "254")]
    *_, score = task.scores(kept, {}, np.zeros(6, int))
    assert score.metrics["coarse accuracy"] == pytest.approx(1 / 6)
    assert score.metrics["fine accuracy"] == pytest.approx((4 + 0 + 2 + 3 + 0 + 1) / 4 / 6)
    assert task.correct(kept, {}).tolist() == [True, *[False] * 5]


@pytest.mark.parametrize(
    ("kind", "lengths", "rule"),
    [
        ("bigram_flip", (5, 5), "even, and data asks train for 5 to 5"),
        ("priority_sort", (7, 7), "even, and data asks train for 7 to 7"),
        ("associative_recall", (3, 11), "a multiple of 4, from 12 up, and data asks train for 3 to 11"),
    ],
)
def test_lengths_that_a_kind_does_not_have_are_told(kind: Kind, lengths: tuple[int, int], rule: str) -> None:
    with pytest.raises(RecipeError, match=f"the length of a source of {kind} is {rule}"):
        Transduction(kind, alphabet=8).make_data(replace(SMALL, train_lengths=lengths))


def test_a_file_without_targets_holds_sources(tmp_path: Path) -> None:
    task = Transduction("copy", alphabet=4)
    (tmp_path / "sources.txt").write_text("1 2\n3\n")
    read = task.read_examples(tmp_path / "sources.txt")
    assert [str(tree) for tree in read] == [str(task.parse(text)) for text in ("1 2", "3")]
    assert not task.examples(read).labelled.any()
    (tmp_path / "pairs.txt").write_text("1 2\t1 2\n3\n")
    with pytest.raises(ParseError, match="line 2"):
        task.read_examples(tmp_path / "pairs.txt")


def test_the_network_says_the_next_symbol_and_reads_what_it_was_to_say() -> None:
    task = Transduction("copy", alphabet=4)
    model = Model(task, NETWORK)
    examples = task.examples(task.make_data(SMALL).forest)
    (batch, *_) = examples.loader(model.vocabulary).batches()
    model.train()
    outputs = model.encoder(batch).outputs
    assert outputs.shape == (*batch.target.token.shape, 6)
    changed = batch.target.token.clone()
    changed[:, -1] = 0  # the last symbol is said, and not read
    again = model.encoder(type(batch)(batch.token, batch.lengths, target=type(batch)(changed, batch.target.lengths)))
    torch.testing.assert_close(again.outputs, outputs)
    model.eval()
    one = type(batch)(batch.token[:1, : int(batch.lengths[0])], batch.lengths[:1])
    assert model.encoder(one).decoded[0] == model.encoder(batch).decoded[0], "padding does not matter"


def test_wrong_sources_are_told(tmp_path: Path) -> None:
    task = Transduction("gender", alphabet=8)
    (tmp_path / "pairs.txt").write_text("the en1\tdas gn1\nwe0\twgg\n")
    lengths: tuple[Any, ...] = ((9, 8), 8, ("a", "b"), (8.5, 9.5), (8,))
    for act, error, named in (
        (lambda: task.parse("  "), ParseError, "the source is empty"),
        (lambda: task.parse("teh en1"), VocabularyError, "unknown symbol 'teh' in the source; did you mean the"),
        *(
            (lambda word=word: task.parse(f"the {word} en1"), VocabularyError, f"column 5: .*'{re.escape(word)}'")
            for word in ("|||", "</s>", "das")
        ),
        (lambda: task.parse("the en1\tdas gn1"), ParseError, "there is a tab in the source"),
        (lambda: task.forest_of([Tree("Add", [Tree("the")])]), GraphError, "a source is a tree"),
        (lambda: task.examples(Forest.from_trees(["(Add the en1)"])), GraphError, "a pair is a tree"),
        (lambda: task.read_examples(tmp_path / "pairs.txt"), VocabularyError, r"pairs\.txt, line 2, column 1: .*'wgg'"),
        *((lambda e=each: TransductionDataOptions(train_lengths=e), RecipeError, "train_lengths") for each in lengths),
    ):
        with pytest.raises(error, match=named):
            act()
