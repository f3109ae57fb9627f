"""Runs of an Ordered Memory, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treemem
from treemem.errors import GraphError, RecipeError
from treemem.explore.memory_run import main, memory_run_record
from treemem.explore.memory_steps import attended, memory_steps, memory_table
from treemem.explore.plots import plot_memory_run
from treemem.records import read_records
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.induced import tree_from_pointers

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
SLOTS = 6


@st.composite
def possible_pointers(draw: st.DrawFn) -> list[int]:
    pointers = [0, SLOTS]
    for _ in range(draw(st.integers(0, 8))):
        pointers.append(draw(st.integers(max(1, pointers[-1] - 1), SLOTS)))
    return pointers


@given(possible_pointers())
def test_the_last_candidate_is_the_induced_tree(pointers: list[int]) -> None:
    tokens = [f"t{place}" for place in range(len(pointers))]
    last = memory_steps(tokens, pointers, SLOTS)[-1].candidates[SLOTS]
    assert parse_brackets(last.replace("(", "(X ")) == tree_from_pointers(
        [each - 1 for each in [1, *pointers[1:]]], tokens
    )


def test_slots_below_the_attended_one_hold_nothing_but_the_token() -> None:
    *_, step = memory_steps(["a", "b", "c", "d"], [0, 3, 2, 3], 3)
    assert step.memory == {3: "(a (b c))"}
    assert step.candidates == {1: "d", 2: "d", 3: "((a (b c)) d)"}


@pytest.mark.parametrize("pointers", [[0, 2, 3, 3], [0, 3, 1, 1], [0, 3, 4, 4], [0, 3]])
def test_a_pointer_that_the_memory_cannot_have_is_refused(pointers: list[int]) -> None:
    with pytest.raises(GraphError, match="token"):
        memory_table(["a", "b", "c", "d"], pointers, 3)


def test_a_run_of_a_model_is_recorded_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, folder = "[MAX 2 [MIN 8 7 ] ]", CHECKPOINTS / "ordered_memory"
    model = treemem.load(folder)
    assert main([str(folder), text, "--plot", str(tmp_path / "run.png"), "--record", str(tmp_path / "run.jsonl")]) == 0
    record: dict[str, Any] = next(iter(read_records(tmp_path / "run.jsonl"))).fields
    assert record.items() >= memory_run_record(model, text).items()
    assert record["tokens"] == text.split()
    assert np.allclose(np.sum(record["probabilities"][1:], 1), 1, atol=1e-3)
    assert str(model.encoder.induced_trees(_batch(model, text))[0]) == record["tree"]  # type: ignore[operator]
    assert f"predicted: {record['predicted']}" in capsys.readouterr().out
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def _batch(model: treemem.Model, text: str) -> treemem.TreeBatch:
    return treemem.TreeBatch.from_trees([model.task.parse(text)], model.vocabulary)


def test_the_drawn_slots_are_those_of_the_steps(tmp_path: Path) -> None:
    record = {"tokens": ["a", "b", "c"], "probabilities": [[0.0] * 3, [0, 0, 1], [0, 0.9, 0.1]]}
    above, below = plot_memory_run(record, tmp_path / "run.svg").axes
    assert [text.get_text() for text in above.texts] == ["a", "b", "c"]
    assert [text.get_text() for text in below.texts] == ["a", "a", "b"]
    assert [label.get_text() for label in below.get_yticklabels()] == ["slot 3", "slot 2"]
    assert attended(record)[1][1:] == [1.0, 0.9]


def test_other_networks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecipeError, match="Ordered Memory"):
        memory_run_record(treemem.load(CHECKPOINTS / "lstm"), "x")
    assert main([str(CHECKPOINTS / "lstm"), "x"]) == 2
    assert "Ordered Memory" in capsys.readouterr().err
