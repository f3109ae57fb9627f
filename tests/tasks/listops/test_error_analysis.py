"""Accuracy by length, depth and arguments, with other pointers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import treemem
from treemem.model_digest import weights_digest
from treemem.runs.study_records import read_study
from treemem.tasks.listops import error_analysis
from treemem.tasks.listops.error_analysis import error_record, error_records, main, share, single_lists, with_pointers
from treemem.tasks.listops.generation.evaluation import evaluate_expressions
from treemem.tasks.listops.generation.study_sets import expressions_of
from treemem.trees.forest import Forest

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
SETS = {"short": expressions_of("length 5-20", 30, 1), "wide": expressions_of("length 20-40 arguments 10", 20, 1)}


@pytest.fixture(autouse=True)
def _few_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_analysis, "_LISTS", 3)


@pytest.fixture
def memory() -> treemem.Model:
    return treemem.load(CHECKPOINTS / "ordered_memory")


def test_sharpness_multiplies_the_scores_and_leaves_the_model_as_it_was(memory: treemem.Model) -> None:
    batch = treemem.TreeBatch.from_trees([memory.task.parse("[MAX 2 [MIN 8 7 ] 5 ]")], memory.vocabulary)
    before = weights_digest(memory)
    odds = []
    for model in (memory, with_pointers(memory, 4.0)):
        encoder: Any = model.encoder
        with torch.no_grad():
            pointers = encoder(batch, trace=True).trace["pointers"][0]
        odds.append(torch.log(pointers[2, 2] / pointers[2, 1]))  # of the two slots that the third token may attend to
    torch.testing.assert_close(odds[1], 4 * odds[0], rtol=1e-4, atol=1e-5)
    changed: Any = with_pointers(memory, 1.0, slots=5).encoder
    assert changed.slots == 5
    assert weights_digest(memory) == before


def test_single_lists_have_each_number_of_arguments_and_their_values() -> None:
    lists = single_lists()
    assert [tree.size for tree in Forest.from_trees(lists[::3])] == [2 * count + 3 for count in range(2, 16)]
    assert lists.tree_data["label"].tolist() == evaluate_expressions(lists).tolist()


def test_correct_answers_are_counted_in_every_way(memory: treemem.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_analysis, "_correct", lambda model, forest: forest.tree_data["label"] < 5)
    record = error_record("mine", memory, SETS)
    by_way: dict[str, list[Any]] = {}
    for each in record["groups"]:
        by_way.setdefault(each["way"], []).append((each["group"], each["examples"], each["correct"]))
    correct = {name: int((forest.tree_data["label"] < 5).sum()) for name, forest in SETS.items()}
    assert by_way["set"] == [("short", 30, correct["short"]), ("wide", 20, correct["wide"])]
    for way in ("length", "depth", "arguments"):
        assert [sum(column) for column in list(zip(*by_way[way], strict=True))[1:]] == [50, sum(correct.values())]
    assert share(record, "set", "short") == correct["short"] / 30
    assert share(record, "set", "long") is None
    of_single = [each for way in by_way if way.startswith("arguments of a single list [") for each in by_way[way]]
    assert sum(examples for _, examples, _ in of_single) == 3 * 14


def test_a_model_is_measured_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_analysis.DataSets, "__getitem__", lambda self, name: SETS[name])
    words = [str(CHECKPOINTS / "ordered_memory"), "--name", "mine", "--sets", "short", "--slots", "3", "9"]
    words += ["--record", str(tmp_path / "errors.jsonl")]
    for _ in range(2):
        assert main(words) == 0
    assert [(each["name"], each["slots"]) for each in read_study(tmp_path / "errors.jsonl")] == [
        ("mine", 3),
        ("mine", 9),
    ]
    assert "| mine    |     9 |         1 |" in capsys.readouterr().out
    assert main([str(CHECKPOINTS / "lstm")]) == 2
    assert "give one of listops" in capsys.readouterr().err


def test_the_runs_of_a_study_are_measured_once_and_memories_with_sharper_pointers_too(
    memory: treemem.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_analysis, "recorded_model", lambda folder, record: memory)
    monkeypatch.setattr(error_analysis, "_correct", lambda model, forest: forest.tree_data["label"] < 5)
    runs = [
        {"run": name, "network": {"network": network}, "weights": weights_digest(memory)}
        for name, network in (("a", "OrderedMemory"), ("b", "LSTM"))
    ]
    data = dict.fromkeys((*error_analysis.SETS, *error_analysis.OF_ONE_LENGTH), SETS["short"])
    done: Any = SimpleNamespace(records=runs, data=data, folder=None)
    found = list(error_records(done, [], sharpness=2.0, slots=24))
    assert [(each["name"], each["sharpness"], each["slots"]) for each in found] == [
        ("a", 1.0, 3),
        ("a, sharper", 2.0, 24),
        ("b", 1.0, 3),
    ]
    assert list(error_records(done, found, sharpness=2.0, slots=24)) == []
