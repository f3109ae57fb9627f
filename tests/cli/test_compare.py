from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treemem.cli import main


def statistics(printed: str) -> list[str]:
    """The rows of the table of paired statistics."""
    rows = [line for line in printed.split("McNemar's test")[1].splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows]


def test_networks_of_a_run_stand_side_by_side_with_paired_statistics(
    trained: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "run", "-o", "plot.svg"]) == 0
    printed = capsys.readouterr().out
    table = (trained / "table.md").read_text().split("\n\n")[1].splitlines()
    assert printed.split("\n\n")[1].splitlines() == table
    assert "±" in table[3]
    assert statistics(printed) == ["sum minus", "small sum"]
    assert (folder / "plot.svg").read_text().startswith("<?xml")


def test_a_network_compared_with_itself_differs_in_nothing(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "run/sum", "run/sum"]) == 0
    printed = capsys.readouterr().out
    *_, row = [line for line in printed.splitlines() if line.startswith("| sum (run) 2 ") and " to " in line]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["0.00", "0.00 to 0.00", "0", "0", "1, 1"]


def test_tables_can_be_latex(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "run", "--format", "latex"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("% Test: accuracy in %, by height\n\\begin{tabular}{lrr")
    assert printed.count(r"\toprule") == 2
    assert r"sum minus & points & 95 \% interval & " in printed
    others = [line for line in printed.splitlines() if line and line[0] != "\\" and " & " not in line]
    assert all(line.startswith("% ") for line in others)


def test_networks_without_answers_are_not_compared(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trained / "sum" / "answers.jsonl").unlink()
    assert main(["compare", "run"]) == 0
    printed = capsys.readouterr().out
    assert "no paired statistics for sum and small sum: answers to single examples are not known" in printed


def test_answers_of_other_weights_do_not_count(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = trained / "sum" / "answers.jsonl"
    earlier = answers.read_bytes()
    again = ["--seeds", "1", "2", "--networks", "sum", "training.learning_rate=0.0001", "--overwrite"]
    assert main(["train", "toy.yaml", "-o", "run", *again]) == 0
    assert answers.read_bytes() != earlier
    answers.write_bytes(earlier)
    capsys.readouterr()
    assert main(["compare", "run"]) == 0
    said = capsys.readouterr()
    assert "answers to single examples are not known" in said.out
    assert "the answers in run/sum/answers.jsonl are of other weights than run/sum/seed-1 has now" in said.err


def test_answers_without_their_weights_count(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "run"]) == 0
    expected = capsys.readouterr().out
    for run in trained.glob("*/seed-*"):
        shutil.rmtree(run)
    assert main(["compare", "run"]) == 0
    assert capsys.readouterr().out == expected


def test_networks_that_were_tested_on_other_data_are_not_compared(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "toy.yaml", "-o", "other", "--networks", "sum", "data.seed=5", "training.epochs=1"]) == 0
    capsys.readouterr()
    assert main(["compare", "run/sum", "other"]) == 0
    printed = capsys.readouterr().out
    assert "no paired statistics for sum (run) and sum (other): the networks were tested on different data" in printed
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("| ")]
    assert rows == [
        "network",
        *("majority class", "sum (run)", "examples"),
        *("majority class", "sum (other)", "examples"),
    ]


def test_what_is_no_run_is_told(trained: Path, folder: Path, failing: Callable[..., str]) -> None:
    (folder / "empty").mkdir()
    assert "empty holds no scored networks" in failing("compare", "empty")

    results = trained / "sum" / "results.jsonl"
    shutil.copytree(trained / "sum", folder / "deeper")
    (folder / "deeper" / "results.jsonl").write_text(results.read_text().replace('"height"', '"length"'))
    said = failing("compare", "run", "deeper")
    assert "these networks are of different tasks" in said
    assert "or of one whose scores were told apart by different things" in said
    (trained / "sum" / "answers.jsonl").write_text('{"seed": 1}\n')
    assert "answers.jsonl, line 1: this record has no data and no right" in failing("compare", "run")
    results.write_text("{")
    assert "results.jsonl, line 1" in failing("compare", "run")


def test_unequal_seeds_are_said(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy.yaml", "--seeds", "2", "--networks", "sum", "-o", "other"]) == 0
    capsys.readouterr()
    assert main(["compare", "run/sum", "other"]) == 0
    said = capsys.readouterr().out
    assert "has the seeds 1, 2, and sum (other) has 2. Their paired statistics use only: 2." in said
