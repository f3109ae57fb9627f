from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from treemem import load_pretrained
from treemem.tasks.equation_verification.completion import __main__ as command
from treemem.tasks.equation_verification.completion import fill
from treemem.tasks.equation_verification.completion.__main__ import main
from treemem.tasks.equation_verification.generation.generator import generate_equations


@pytest.fixture
def equations(tmp_path: Path) -> Path:
    file = tmp_path / "equations.txt"
    file.write_text("x + 1 = 1 + x\nsin(x + y) = sin(y + x)\nx*2 = x + x\n")
    return file


def test_ranks_are_printed_and_written(saved_model: Path, equations: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / "ranks.jsonl"
    assert main([str(saved_model), "--equations", str(equations), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert [f"rank: {name}\n" in printed for name in ("raw", "class", "collapsed", "random_collapse")] == [True] * 4
    assert printed.count("| all ") == 4
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [record["id"] for record in records] == [1, 2, 3]
    assert [record["depth"] for record in records] == [2, 3, 2]
    assert all(1 <= record["class"] <= record["raw"] <= 1470 for record in records)
    assert all(record["collapsed"] <= record["class"] and len(record["random_collapse"]) == 10 for record in records)
    mean = sum(1 / record["class"] for record in records) / 3
    table = printed.split("rank: class\n")[1].split("rank:")[0]
    (overall,) = [line for line in table.splitlines() if line.startswith("| all ")]
    assert math.isclose(float(overall.split("|")[-2]), mean, abs_tol=1e-4)


def test_the_file_of_the_equations_is_not_overwritten(saved_model: Path, equations: Path, capsys) -> None:
    before = equations.read_text()
    assert main([str(saved_model), "--equations", str(equations), "--output", str(equations)]) == 2
    assert "is the input; choose another output" in capsys.readouterr().err
    assert equations.read_text() == before


def test_generated_equations_come_from_a_folder_or_are_made(saved_model: Path, tmp_path: Path, capsys) -> None:
    generate_equations(300, seed=1).save(tmp_path / "data")
    printed = []
    for source in (["--equations", str(tmp_path / "data")], ["--size", "300"]):
        assert main([str(saved_model), *source, "--seed", "1", "--limit", "2"]) == 0
        printed.append(capsys.readouterr().out.split("\n", 1)[1])
    assert printed[0] == printed[1]


def test_without_a_checkpoint_the_packaged_model_fills(capsys) -> None:
    assert main(["--fill", "sin(x)^2 + ? = 1", "--top", "1"]) == 0
    (best,) = fill(load_pretrained(), "sin(x)^2 + ? = 1", top=1)
    assert f"| {best.text} " in capsys.readouterr().out


def test_an_equation_is_filled(saved_model: Path, capsys) -> None:
    assert main([str(saved_model), "--fill", "sin(x)^2 + ? = 1", "--top", "3", "--collapse"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--fill", "x = 1"], "there is no '?'"),
        (["--equations", "missing.txt"], "missing.txt"),
        (["--limit", "0"], "--limit must be at least 1, not 0"),
        (["--candidates", "missing.jsonl"], "missing.jsonl"),
        (["--seed", "-1"], "seed must be at least 0, not -1"),
        (["--output", "missing/ranks.jsonl"], "cannot write missing/ranks.jsonl: there is no folder missing"),
        (["--output", "."], "cannot write .: it is a folder"),
    ],
)
def test_mistakes_are_errors_and_no_tracebacks(
    saved_model: Path, arguments: list[str], problem: str, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(command, "generate_equations", lambda *_, **__: pytest.fail("work before the mistake is told"))
    assert main([str(saved_model), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert problem in error
