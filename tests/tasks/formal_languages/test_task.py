"""Functions and languages, each against a definition of its own, and how outputs are scored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.records import write_records
from treemem.tasks.formal_languages import FormalDataOptions, FormalLanguages
from treemem.tasks.formal_languages.languages import BLANK, END, Kind, Words, language
from treemem.tasks.formal_languages.task import Outputs
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

SMALL = FormalDataOptions(40, 10, 20, (1, 8), (1, 16), seed=3)
NETWORK = NetworkConfig("MemoryRNN", {"hidden_size": 8, "memory": "stack", "memory_size": 4})
KINDS = get_args(Kind)


def value(words: Words) -> str:
    return str(eval("".join(words)) % 5)


def solution(words: Words) -> str:
    left, right = "".join(words).split("=")
    (found,) = [x for x in range(5) if eval(left.replace("x", f"({x})")) % 5 == int(right)]
    return str(found)


def manipulated(words: Words) -> str:
    held = "".join(word for word in words if word in "01")
    for word in words[len(held) :]:
        held = held[:-1] if word == "pop" else held + word[-1]
    return held[::-1] + END


def missing(words: Words) -> str:
    text = "".join(words).rstrip(".")
    (found,) = [
        bit for bit in "01" if text.replace("?", bit)[: len(text) // 2] == text.replace("?", bit)[len(text) // 2 :]
    ]
    return found


def of_numbers(operator: str) -> Callable[[Words], str]:
    def answer(words: Words) -> str:
        one, other = (int(bits[::-1], 2) for bits in "".join(words).split(operator))
        return f"{one + other if operator == '+' else one * other:b}"[::-1] + END

    return answer


FUNCTIONS: dict[str, Callable[[Words], str]] = {
    "even_pairs": lambda words: str(int(words[0] != words[-1])),
    "modular_arithmetic": value,
    "parity": lambda words: str(sum(map(int, words)) % 2),
    "cycle_navigation": lambda words: str(sum({"left": 4, "stay": 0, "right": 1}[word] for word in words) % 5),
    "stack_manipulation": manipulated,
    "reverse_string": lambda words: "".join(reversed(words)),
    "modular_arithmetic_brackets": value,
    "solve_equation": solution,
    "duplicate_string": lambda words: "".join(words + words),
    "missing_duplicate": missing,
    "odds_first": lambda words: "".join(sorted_by_parity(words)),
    "binary_addition": of_numbers("+"),
    "binary_multiplication": of_numbers("*"),
    "compute_sqrt": lambda words: f"{math.isqrt(int(''.join(words), 2)):b}".zfill((len(words) + 1) // 2),
    "bucket_sort": lambda words: "".join(sorted(words)),
}


def sorted_by_parity(words: Words) -> Words:
    return [words[place] for place in sorted(range(len(words)), key=lambda place: (place % 2 == 0, place))]


@pytest.mark.parametrize("kind", FUNCTIONS)
@given(place=st.integers(0, 30), seed=st.integers(0, 1000))
def test_an_output_is_that_of_the_function(kind: Kind, place: int, seed: int) -> None:
    own = language(kind, 2)
    length = own.lengths(1, 100)[place]
    words = own.draw(length, np.random.default_rng(seed))
    assert len(words) == length
    assert set(words) <= set(own.symbols)
    assert "".join(own.answer(words)) == FUNCTIONS[kind](words)
    read, asked = own.example(words)
    assert len(read) == len(asked)
    assert (read[:length], set(read[length:])) == (words, {BLANK})
    assert set(asked) <= {*own.outputs, BLANK}
    assert set(asked[:length]) == {BLANK}


def counted(letters: str, times: tuple[int, ...]) -> list[str]:
    return ["".join(letter * count * n for letter, count in zip(letters, times, strict=True)) for n in range(1, 12)]


def bracketed(pairs: int, length: int) -> list[Words]:
    symbols = [f"{mark}{pair}" for mark in "()" for pair in range(1, pairs + 1)]
    found = []
    for words in itertools.product(symbols, repeat=length):
        opened: Words = []
        for word in words:
            if word[0] == "(":
                opened.append(word[1:])
            elif not opened or opened.pop() != word[1:]:
                break
        else:
            found += [] if opened else [list(words)]
    return found


def following(words: list[Words], prefix: Words) -> set[str]:
    size = len(prefix)
    return {each[size] if len(each) > size else END for each in words if each[:size] == prefix}


WORDS: dict[str, list[Words]] = {
    "an_bn": [[*word] for word in counted("ab", (1, 1))],
    "an_b2n": [[*word] for word in counted("ab", (1, 2))],
    "an_bm_cnm": [[*"a" * n, *"b" * m, *"c" * (n + m)] for n in range(1, 8) for m in range(1, 8)],
    "an_bn_cn": [[*word] for word in counted("abc", (1, 1, 1))],
    "an_bn_cn_dn": [[*word] for word in counted("abcd", (1, 1, 1, 1))],
    "dyck": [words for length in (2, 4, 6) for words in bracketed(2, length)],
}


@pytest.mark.parametrize("kind", WORDS)
def test_a_set_holds_the_symbols_that_may_come_next(kind: Kind) -> None:
    own, generator = language(kind, 2), np.random.default_rng(1)
    for length in own.lengths(1, 4 if kind == "dyck" else 12):
        for _ in range(5):
            words = own.draw(length, generator)
            assert words in WORDS[kind]
            for place, found in enumerate(own.answer(words)):
                expected = following(WORDS[kind], words[: place + 1])
                always = {"(1", "(2"} if kind == "dyck" else set()
                named = {found} if kind == "dyck" else {*found}
                assert named | always == expected


def test_every_kind_is_tested() -> None:
    assert {*KINDS} == {*FUNCTIONS, *WORDS}


@pytest.mark.parametrize("kind", KINDS)
def test_data_have_all_lengths_and_are_the_same_from_a_file(kind: Kind, tmp_path: Path) -> None:
    task = FormalLanguages(kind)
    forest = task.make_data(SMALL).forest
    records = list(task.records_of(forest))
    for split, longest in (("train", 8), ("test", 16)):
        assert {r["length"] for r in records if r["split"] == split} == {*task.language.lengths(1, longest)}
    write_records(tmp_path / "examples.jsonl", records)
    found = task.make_data(FormalDataOptions(path=str(tmp_path / "examples.jsonl"))).forest
    assert found == forest
    assert task.examples(found).digest() == task.examples(forest).digest()


def test_only_what_is_asked_counts() -> None:
    task = FormalLanguages("reverse_string")
    blank = len(task.vocabulary.leaves) - 1
    one, zero = task.vocabulary.leaves.index("1"), task.vocabulary.leaves.index("0")
    outputs = torch.zeros(1, 4, 2)
    outputs[..., one] = 5
    asked = torch.tensor([[blank, blank, one, -100]])
    loss = task.loss(outputs, {"tokens": asked})
    assert loss.count == 1
    assert float(loss.sum) < 0.01

    def kept(said: list[int], gold: list[int], length: int) -> Outputs:
        return Outputs(np.array(said), np.array(gold), length)

    of_all = [kept([one, zero], [one, zero], 2), kept([one, one], [one, blank], 2), kept([one, one], [one, zero], 2)]
    *_, score = task.scores([*of_all, kept([one], [zero], 1)], {}, np.zeros(4, int))
    assert score.metrics == {
        "symbol accuracy": pytest.approx(2.5 / 4),
        "sequence accuracy": pytest.approx(0.5),
        "worst length": 0.0,
    }
    *_, score = FormalLanguages("an_bn").scores(
        [kept([0, 1], [0, 1], 2), kept([0, 0], [0, 1], 2)], {}, np.zeros(2, int)
    )
    assert score.metrics["worst length"] == 0.5
    assert task.correct(of_all, {}).tolist() == [True, True, False]


def test_predictions_are_symbols_whatever_the_form_of_the_inputs(tmp_path: Path) -> None:
    task = FormalLanguages("stack_manipulation")
    model = Model(task, NETWORK).eval()
    answers = model.predict(["0 1 pop", "1"])
    assert all({*answer.split()} <= {"0", "1", END} for answer in answers)
    assert model.predict([Tree("Sequence", [Tree("0"), Tree("1"), Tree("pop")]), task.parse("1")]) == answers
    (tmp_path / "inputs.txt").write_text("0 1 pop\n1\n")
    assert model.predict(task.read_examples(tmp_path / "inputs.txt")) == answers


def test_wrong_inputs_are_told(tmp_path: Path) -> None:
    task = FormalLanguages("parity")
    (tmp_path / "pairs.txt").write_text("1 1\t0\n1\t1 0\n")
    none = FormalDataOptions(train_lengths=(3, 3))
    for act, error, named in (
        (lambda: task.parse("  "), ParseError, "the source is empty"),
        (lambda: task.forest_of([Tree("Add", [Tree("1")])]), GraphError, "a source is a tree"),
        (lambda: task.examples(Forest.from_trees(["(Add 1 0)"])), GraphError, "an example is a tree"),
        (lambda: task.read_examples(tmp_path / "pairs.txt"), ParseError, r"pairs\.txt, line 2.* 1 outputs, not 2"),
        (
            lambda: FormalLanguages("dyck").make_data(none),
            RecipeError,
            r"train_lengths=\[3, 3\] .* lengths are 2, 4, 6",
        ),
    ):
        with pytest.raises(error, match=named):
            act()


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ("Transformer", {"num_heads": 2, "num_layers": 1}),
        ("StackAttentionTransformer", {"num_heads": 2, "layers": "1"}),
        ("LSTM", {"bidirectional": True}),
    ],
)
def test_a_network_that_reads_later_symbols_is_refused_for_languages_alone(
    network: str, options: dict[str, Any]
) -> None:
    config = NetworkConfig(network, {"hidden_size": 4, **options})
    Model(FormalLanguages(kind="reverse_string"), config)
    with pytest.raises(RecipeError, match=f"outputs of this {network} depend on later symbols, and dyck asks at each"):
        Model(FormalLanguages(kind="dyck"), config)
    causal = {"LSTM": {"bidirectional": False}, "StackAttentionTransformer": {"causal": True}}.get(network)
    if causal is not None:
        Model(FormalLanguages(kind="dyck"), config.replace(**causal))
