from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treemem.cli import main

LINES = "x + y = y + x\nx + = x\nsin(x) = cos(x) + 2\n"
PREDICT = ["predict", "equation_verification", "own.txt", "--processes", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _own_equations(folder: Path) -> None:
    (folder / "own.txt").write_text(LINES)


def answers(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_record_has_an_answer_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PREDICT, "-o", "answers.jsonl"]) == 0
    assert "3 records: 2 predicted, 1 with an error" in capsys.readouterr().err
    found = answers(folder / "answers.jsonl")
    assert [answer["id"] for answer in found] == [1, 2, 3]
    assert [answer["prediction"] for answer in found] == [1, None, 0]
    assert "line 2, column 5" in found[1]["error"]


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="this system has no names for open files")
def test_nothing_of_a_pipe_is_lost(folder: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, LINES.encode())
    os.close(writing)
    words = [f"/dev/fd/{reading}" if word == "own.txt" else word for word in PREDICT]
    assert main([*words, "-o", "answers.jsonl"]) == 0
    os.close(reading)
    assert [answer["id"] for answer in answers(folder / "answers.jsonl")] == [1, 2, 3]


def test_a_complete_output_is_left_and_nothing_is_said_of_a_rate(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main([*PREDICT, "-o", "answers.jsonl"]) == 0
    first = (folder / "answers.jsonl").read_bytes()
    assert "records/s" in capsys.readouterr().err + caplog.text
    caplog.clear()
    (folder / "own.txt").write_text("x = x\n")
    assert main([*PREDICT, "-o", "answers.jsonl", "--resume"]) == 0
    told = capsys.readouterr().err + caplog.text
    assert "answers.jsonl is complete already, its model and input are not checked: 3 records" in told
    assert "records/s" not in told
    assert (folder / "answers.jsonl").read_bytes() == first


def test_the_exit_code_is_3_if_every_record_is_bad_and_some_bad_records_are_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main([*PREDICT, "-o", "some.jsonl"]) == 0
    assert "1 of 3 records have no prediction; see their field error" in capsys.readouterr().err + caplog.text
    (folder / "own.txt").write_text("what is this?\nno\n")
    for options in ([], ["--resume"]):
        assert main([*PREDICT, "-o", "answers.jsonl", *options]) == 3
        assert "no record has a prediction; does own.txt belong" in capsys.readouterr().err + caplog.text
        caplog.clear()


def test_a_threshold_and_formats_are_taken(folder: Path) -> None:
    assert main([*PREDICT, "-o", "answers.txt", "--output-format", "csv", "--threshold", "1", "--format", "text"]) == 0
    rows = [line.split(",") for line in (folder / "answers.txt").read_text().splitlines()]
    assert rows[0] == ["id", "prediction", "probability", "error", "warning"]
    assert [row[1] for row in rows[1:]] == ["0", "", "0"]


def test_what_is_wrong_is_told(folder: Path, failing: Callable[..., str]) -> None:
    assert "own.txt, line 2" in failing(*PREDICT, "-o", "answers.jsonl", "--strict")
    assert "own.txt is the input" in failing(*PREDICT, "-o", "own.txt", "--overwrite")
    assert "contradict each other" in failing(*PREDICT, "-o", "new.jsonl", "--overwrite", "--resume")
    assert "threshold must be a probability" in failing(*PREDICT, "-o", "new.jsonl", "--threshold", "2")
    assert not (folder / "new.jsonl").exists()
