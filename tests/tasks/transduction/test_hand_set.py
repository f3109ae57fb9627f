"""Controllers with weights set by hand: what they solve is within the reach of a network with a memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.transduction import Transduction
from treemem.tasks.transduction.grammars import DRAWS, Kind
from treemem.tasks.transduction.hand_set import DELAY, SOLVED, hand_set_model, main


def pairs_of(kind: Kind, alphabet: int) -> list[tuple[str, str]]:
    generator = np.random.default_rng(3)
    pairs = [DRAWS[kind](int(length), alphabet, generator) for length in range(8, 129, 2)]
    return [(" ".join(source), " ".join(target)) for source, target in pairs]


def words_before_the_noun(source: str) -> int:
    return max((len(words.split()) for words in re.findall(r"the ((?:we\d+ )*)", source)), default=0)


@pytest.mark.parametrize(("kind", "memory"), [(kind, memory) for kind in SOLVED for memory in SOLVED[kind]])
def test_a_memory_solves_the_kind_at_every_length(kind: Kind, memory: str) -> None:
    task = Transduction(kind=kind, alphabet=12)
    pairs = pairs_of(kind, 12)
    if kind == "gender":
        pairs = [pair for pair in pairs if words_before_the_noun(pair[0]) <= DELAY - 2]
    assert len(pairs) > 40
    assert max(len(source.split()) for source, _ in pairs) > 110
    sources, targets = zip(*pairs, strict=True)
    assert hand_set_model(task, memory).predict(sources) == list(targets)


def test_an_article_needs_its_noun_within_the_delay_of_the_controller() -> None:
    model = hand_set_model(Transduction(kind="gender", alphabet=12), "queue")
    near = ["the", *["we1"] * (DELAY - 2), "em0", "we2"]
    far = ["the", *["we1"] * (DELAY - 1), "em0", "we2"]
    written = [text.split() for text in model.predict([" ".join(near), " ".join(far)])]
    assert written[0] == ["der", *["wg1"] * (DELAY - 2), "gm0", "wg2"]
    assert "der" not in written[1]


def test_relative_clauses_keep_their_verbs_and_the_main_verb_goes_last() -> None:
    model = hand_set_model(Transduction(kind="svo_sov", alphabet=12), "deque")
    source = "si0 rpi si1 rpi si2 vi0 oi0 vi1 oi1 vi2 oi2 si3 rpi si0 vi3 oi3"
    assert model.predict([source]) == ["so0 rpo so1 rpo so2 vo0 oo0 vo1 oo1 oo2 so3 rpo so0 vo3 oo3 vo2"]


@pytest.mark.parametrize(("kind", "memory"), [("copy", "stack"), ("priority_sort", "queue"), ("reversal", "list")])
def test_other_kinds_and_memories_are_refused(kind: Kind, memory: str) -> None:
    with pytest.raises(RecipeError, match=f"no controller set by hand for {kind} with {memory}; there are: copy with"):
        hand_set_model(Transduction(kind=kind, alphabet=12), memory)


def test_the_command_prints_a_row_for_each_controller(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--alphabet", "6", "--lengths", "8", "12", "--pairs", "4"]) == 0
    rows = [line.split("|")[1:5] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0].strip(), row[1].strip()) for row in rows] == [(kind, m) for kind in SOLVED for m in SOLVED[kind]]
    assert {row[3].strip() for row in rows if row[0].strip() != "gender"} == {"100.00"}
    assert main(["--lengths", "9", "8"]) == 2
    assert "error: " in capsys.readouterr().err
