from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from treemem.cli import main

EXPLORE = ["explore", "equation_verification", "own.txt", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _own_equations(folder: Path) -> None:
    (folder / "own.txt").write_text("x + y = y + x\t1\nsin(x) = cos(x) + 2\n")


def test_a_page_of_examples_from_all_over_the_file_is_written(folder: Path) -> None:
    (folder / "own.txt").write_text("".join(f"x + {number} = {number} + x\t1\n" for number in range(9)))
    assert main([*EXPLORE, "-o", "page.html", "--most", "3"]) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert [number for number in range(9) if f"x + {number} = {number} + x" in page] == [0, 4, 8]


@pytest.mark.parametrize("most", ["2", "9"])
def test_examples_have_the_ids_that_predictions_have(folder: Path, most: str) -> None:
    (folder / "own.csv").write_text("equation\n" + "".join(f"x + {number} = {number} + x\n" for number in range(3)))
    assert main([EXPLORE[0], EXPLORE[1], "own.csv", "-o", "page.html", "--most", most]) == 0
    assert main(["predict", EXPLORE[1], "own.csv", "-o", "answers.jsonl"]) == 0
    answers = [json.loads(line)["id"] for line in (folder / "answers.jsonl").read_text().splitlines()]
    page = (folder / "page.html").read_text(encoding="utf-8")
    shown = [int(number) for number in re.findall(r'"id":\s*"(\d+)"', page)]
    assert shown == (answers if most == "9" else [answers[0], answers[-1]])
