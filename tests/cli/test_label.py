from __future__ import annotations

import json
from pathlib import Path

import pytest

from treemem.cli import main
from treemem.tasks.equation_verification import read_equations

LINES = "a*(b + c) = a*b + a*c\n(a + b)^2 = a^2 + b^2\nx/0 = 1\nlog(a*b) = log(a) + log(b)\noo - oo = 0\n2 + 2 = 5\n"


def test_unlabelled_equations_get_the_verdict_of_the_numerical_test(folder: Path) -> None:
    (folder / "own.txt").write_text(LINES)
    assert main(["label", "own.txt", "-o", "labelled.jsonl"]) == 0
    records = [json.loads(line) for line in (folder / "labelled.jsonl").read_text().splitlines()]
    assert [record["verdict"] for record in records] == ["true", "false", "undecided", "true", "false", "false"]
    assert [record["label"] for record in records] == [1, 0, None, 1, 0, 0]
    assert [record["witness"] for record in records] == [None, "x = 2, y = 3", None, None, None, None]
    read = read_equations(folder / "labelled.jsonl").forest
    assert read.tree_data["label"].tolist() == [1, 0, -1, 1, 0, 0]


@pytest.mark.parametrize("text", ["", "x + = y\n"])
def test_a_file_without_equations_is_an_error(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.txt").write_text(text)
    assert main(["label", "own.txt", "-o", "labelled.csv"]) == 2
    assert "there is no equation in own.txt" in capsys.readouterr().err
    assert not (folder / "labelled.csv").exists()


def test_records_that_are_no_equations_are_left_out(folder: Path) -> None:
    (folder / "own.txt").write_text("x = x\nx + = y\nx = 2\n")
    assert main(["label", "own.txt", "-o", "labelled.csv"]) == 0
    assert (folder / "labelled.csv").read_text().splitlines()[1:] == ["1,x = x,1,true,", "3,x = 2,0,false,x = 0.5"]
