"""Programs against Python, the curricula, and how answers are scored."""

from __future__ import annotations

import contextlib
import io
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from treemem.data.examples import PADDING
from treemem.errors import ParseError, RecipeError, VocabularyError
from treemem.networks import NetworkConfig
from treemem.records import write_records
from treemem.runs import TrainingOptions, fit
from treemem.task.sequences import Written
from treemem.tasks.learning_to_execute import LearningToExecute, ProgramDataOptions
from treemem.tasks.learning_to_execute.page_values import at_level
from treemem.tasks.learning_to_execute.programs import OPERATIONS, OUTPUTS, SYMBOLS, draw_program, printed
from treemem.trees.vocabulary import Vocabulary

SMALL = ProgramDataOptions(120, 20, 36, length=2, nesting=3, seed=3)
NETWORK = NetworkConfig("SequenceToSequence", {"hidden_size": 8, "embedding_size": 4})
PUBLISHED = {
    "j=8584\nfor x in range(8):\n  j+=920\nb=(1500+j)\nprint((b+7567))": 25011,
    "i=8827\nc=(i-5347)\nprint((c+8704) if 2641<8500 else 5308)": 12184,
}


def by_python(program: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(program, {})
    return int(output.getvalue())


@given(length=st.integers(1, 5), nesting=st.integers(1, 8), seed=st.integers(0, 10_000))
def test_a_program_prints_what_python_prints(length: int, nesting: int, seed: int) -> None:
    program = draw_program(length, nesting, random.Random(seed))
    assert printed(program) == by_python(program)
    assert {*program} <= {*SYMBOLS}
    assert {*str(printed(program))} <= {*OUTPUTS}
    assert max(len(number) for number in re.findall("[0-9]+", program)) <= max(length, len(str(4 * length)))
    operations = len(re.findall(r"\+=|-=| if |\*|(?<!range)[-+](?!=)", program))
    assignments = program.count("=") - program.count("+=") - program.count("-=")
    assert operations == nesting, program
    assert assignments <= nesting


@pytest.mark.parametrize("program", PUBLISHED)
def test_the_published_programs(program: str) -> None:
    assert by_python(program) == PUBLISHED[program]
    whole = "(c+8704) if 2641<8500 else 5308"
    ours = program.replace(":\n  ", ":").replace(whole, f"({whole})")  # a conditional has brackets here
    assert printed(ours) == PUBLISHED[program]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("", "line 1: this is no line of a program; expected 'print'"),
        ("a=3\nprint(b)", "line 2, column 7: .*expected a variable with a value, and b has none"),
        ("print((1/2))", r"expected a number, a name or an operator"),
        ("print((1+2)", r"expected '\)'"),
        ("print(3)\nprint(4)", "line 1, column 1: .* expected a variable, which is a letter"),
        ("__import__('os')", "expected"),
        ("for x in range(3):a+=1\nprint(a)", "line 1, column 19: .*a has none"),
        ("print((1 if 2=3 else 4))", "expected one of < >"),
    ],
)
def test_what_is_no_program_is_told(program: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem):
        printed(program)


def test_all_operations_are_drawn() -> None:
    generator = random.Random(1)
    programs = [draw_program(2, 1, generator) for _ in range(200)]
    patterns = (r"\(\d+\+", r"\(\d+-", r"\*", " if ", r"=\d+\nprint\(\(", "for x in range")
    assert len(patterns) == len(OPERATIONS)
    assert all(any(re.search(pattern, program) for program in programs) for pattern in patterns)


def test_no_program_is_in_two_splits_and_the_test_has_every_level() -> None:
    task = LearningToExecute()
    records = list(task.records_of(task.make_data(SMALL).forest))
    sources = {name: {r["source"] for r in records if r["split"] == name} for name in ("train", "validation", "test")}
    assert not sources["train"] & sources["test"]
    assert not sources["train"] & sources["validation"]
    tested = [(record["length"], record["nesting"]) for record in records if record["split"] == "test"]
    assert {level: tested.count(level) for level in tested} == dict.fromkeys(SMALL.levels, 6)
    assert {(r["length"], r["nesting"]) for r in records if r["split"] == "validation"} == {(2, 3)}
    assert all(int(record["target"]) == by_python(record["source"]) for record in records)


def test_each_curriculum_has_its_levels_and_stages() -> None:
    def drawn(curriculum: str) -> set[tuple[int, int, int]]:
        options = ProgramDataOptions(120, 1, 1, length=2, nesting=2, curriculum=curriculum)  # type: ignore[arg-type]
        records = LearningToExecute().records_of(LearningToExecute().make_data(options).forest)
        return {(r["length"], r["nesting"], r["stage"]) for r in records if r["split"] == "train"}

    naive = {(1, 1, 1), (2, 1, 2), (1, 2, 3), (2, 2, 4)}
    mix = {(length, nesting, 1) for length in (1, 2) for nesting in (1, 2)}
    assert drawn("none") == {(2, 2, 1)}
    assert drawn("naive") == naive
    assert drawn("mix") == mix
    assert drawn("combined") == naive | mix
    options = ProgramDataOptions(800, 1, 1, length=3, nesting=2, curriculum="naive")
    records = LearningToExecute().records_of(LearningToExecute().make_data(options).forest)
    of_target = [(r["length"], r["nesting"]) == (3, 2) for r in records if r["split"] == "train"]
    assert np.mean(of_target) == pytest.approx(0.75, abs=0.05)
    with pytest.raises(RecipeError, match=r"data\.curriculum='mixed' is none of"):
        ProgramDataOptions(curriculum="mixed")  # type: ignore[arg-type]


def test_scores_are_by_level() -> None:
    task = LearningToExecute()
    kept = [
        Written(["4", "5"], ["4", "5"], 3),
        Written(["4", "5", "6"], ["4", "5"], 2),
        Written(["4"], ["4", "5"], 2),
        Written([], ["7"], 0),
    ]
    one, other, overall = task.scores(kept, {}, np.array([101, 101, 203, 203]))
    names = ("digit accuracy", "free digit accuracy", "answer accuracy")
    assert one.metrics == pytest.approx(dict(zip(names, (5 / 6, 5 / 6, 1 / 2), strict=True)))
    assert other.metrics == pytest.approx(dict(zip(names, (2 / 5, 1 / 5, 0), strict=True)))
    assert overall.metrics["free digit accuracy"] == pytest.approx(6 / 11)
    assert [task.group_name(int(each.group)) for each in (one, other)] == ["length 1, nesting 1", "length 3, nesting 2"]
    columns = {"level": [101, 103, "all"], "examples": [5, 5, 10], "digit accuracy": [0.9, 0.5, 0.7]}
    assert at_level([{"scores": {"test": columns}}], 103) == "50.00"


def test_digits_are_scored_after_the_correct_ones() -> None:
    symbols = 9
    tokens = torch.tensor([[4, 5, 0], [7, 0, PADDING]])
    logits = torch.zeros(2, 3, symbols)
    for row, said in enumerate([[4, 6, 0], [8, 0, 0]]):
        logits[row, range(3), said] = 1.0
    vocabulary = Vocabulary([*"abcdefghi"], [])
    encoded = SimpleNamespace(decoded=[[4, 6, 6], [8]], tokens=None, vocabulary=vocabulary)
    output = SimpleNamespace(outputs=logits, encoded=encoded)
    task = LearningToExecute()
    assert task.kept(output, None, {"tokens": tokens}) == [Written([*"egg"], [*"ef"], 2), Written(["i"], ["h"], 1)]
    assert task.kept(output, None, {}) == [Written([*"egg"], [], 0), Written(["i"], [], 0)]


def test_programs_and_their_levels_are_read_from_files(tmp_path: Path) -> None:
    task = LearningToExecute()
    forest = task.make_data(SMALL).forest
    write_records(tmp_path / "programs.csv", list(task.records_of(forest)))
    found = task.make_data(ProgramDataOptions(path=str(tmp_path / "programs.csv"))).forest
    assert found.tree_data["stage"].tolist() == forest.tree_data["stage"].tolist()
    (tmp_path / "programs.txt").write_text("a=3\\nprint((a+4))\t7\nprint((3*4))\t12\n")
    read = task.read_examples(tmp_path / "programs.txt")
    assert [record["source"] for record in task.records_of(read)] == ["a=3\nprint((a+4))", "print((3*4))"]
    assert task.group_name(int(task.examples(read).group[0])) == "unknown"
    (tmp_path / "wrong.txt").write_text("print((3*4))\ta\n")
    with pytest.raises(VocabularyError, match="unknown character 'a' in the target"):
        task.read_examples(tmp_path / "wrong.txt")
    with pytest.raises(ParseError, match="the source is empty"):
        task.parse("")
    for length in ("three", "2.5", 150):
        write_records(tmp_path / "level.jsonl", [{"source": "print((3*4))", "target": "12", "length": length}])
        with pytest.raises(ParseError, match=rf"level.jsonl, line 1.*length is '{length}'; .* from 0 to 99"):
            task.read_examples(tmp_path / "level.jsonl")


def test_a_network_is_trained_by_the_stages_of_a_curriculum(tmp_path: Path) -> None:
    task = LearningToExecute()
    options = TrainingOptions(epochs=2, curriculum=((1, 1),), batch_size=16, sort_by_length=True, threads=1)
    data = task.make_data(ProgramDataOptions(48, 8, 8, length=2, nesting=2, curriculum="naive"))
    records = fit(task, NETWORK, data, options, output=tmp_path / "run").records
    assert 0 < records[0]["examples"] < records[1]["examples"]
