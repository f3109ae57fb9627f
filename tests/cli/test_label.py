from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treemem.cli import main
from treemem.records import read_records
from treemem.tasks.equation_verification import labelling, read_equations
from treemem.tasks.equation_verification.generation import evaluation
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.trees import parse_equation
from treemem.trees.forest import Forest

LINES = "a*(b + c) = a*b + a*c\n(a + b)^2 = a^2 + b^2\nx/0 = 1\nlog(a*b) = log(a) + log(b)\noo - oo = 0\n2 + 2 = 5\n"
VERDICTS = {
    "sqrt(x^2) = x": ("false", "x = -2"),
    "10^12 + 1 = 10^12": ("false", None),
    "tanh(20) = 1": ("false", None),
    "x + 10^(-15) = x": ("false", "x = 2"),
    "1000 = 1001": ("false", None),
    "sin(10^60 + x) = sin(10^60)*cos(x) + cos(10^60)*sin(x)": ("true", None),
    "sin(10^40) = 0": ("false", None),
    "sin(10^90 + x) = sin(10^90)*cos(x)": ("false", "x = 2"),
    "sin((10^90 + x/3 - 10^90)*10^90) = sin(x/3*10^90)": ("true", None),  # 200 digits are not enough
    "sqrt(-1 - x^2) = 2": ("undecided", None),
    "x + oo = oo": ("true", None),
    "x + 1/oo = y": ("false", "x = 2, y = 3"),
    "oo*x = oo": ("false", "x = -2"),
    "10^(-10) + 1/oo = 0": ("false", None),
    "sin(pi) + 1/oo = 0": ("true", None),
    "log(x) + 1/oo = log(x)": ("true", None),
    "sqrt(-x^2) + oo = oo": ("undecided", None),
    "nan + x = x": ("false", None),
}


def test_unlabelled_equations_get_the_verdict_of_the_numerical_test(folder: Path) -> None:
    (folder / "own.txt").write_text(LINES)
    assert main(["label", "own.txt", "-o", "labelled.jsonl"]) == 0
    records = [json.loads(line) for line in (folder / "labelled.jsonl").read_text().splitlines()]
    assert [record["verdict"] for record in records] == ["true", "false", "undecided", "true", "false", "false"]
    assert [record["label"] for record in records] == [1, 0, None, 1, 0, 0]
    assert [record["witness"] for record in records] == [None, "x = 2, y = 3", None, None, None, None]
    read = read_equations(folder / "labelled.jsonl").forest
    assert read.tree_data["label"].tolist() == [1, 0, -1, 1, 0, 0]


def test_near_numbers_differ_and_infinity_is_that_of_floating_point_arithmetic(folder: Path) -> None:
    (folder / "own.txt").write_text("\n".join(VERDICTS))
    assert main(["label", "own.txt", "-o", "labelled.jsonl"]) == 0
    records = [json.loads(line) for line in (folder / "labelled.jsonl").read_text().splitlines()]
    found = [(record["verdict"], record["witness"]) for record in records]
    assert dict(zip(VERDICTS, found, strict=True)) == VERDICTS


@pytest.mark.parametrize(
    ("target", "said"),
    [("own.csv", "is the input"), ("other.txt", "no place for a verdict"), ("other.xyz", "cannot tell the format")],
)
def test_a_wrong_output_is_refused_before_any_work(
    target: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own.csv").write_text("equation,note\nx = x,mine\n")
    assert main(["label", "own.csv", "-o", target, "--overwrite"]) == 2
    assert said in capsys.readouterr().err
    assert (folder / "own.csv").read_text() == "equation,note\nx = x,mine\n"


def test_a_file_without_records_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.txt").touch()
    assert main(["label", "own.txt", "-o", "labelled.csv"]) == 2
    assert "there is no equation in own.txt" in capsys.readouterr().err
    assert not (folder / "labelled.csv").exists()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_there_is_a_record_for_each_record_and_bad_ones_have_an_error(folder: Path, suffix: str) -> None:
    lines = [
        '{"id": "a", "equation": "x = x"}',
        '{"id": "b", "equation": "x + = y"}',
        "{",
        '{"equation": "x = 2"}',
        "3",
    ]
    (folder / "own.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["label", "own.jsonl", "-o", f"labelled.{suffix}"]) == 0
    records = [record.fields for record in read_records(folder / f"labelled.{suffix}")]
    assert [str(record["id"]) for record in records] == ["a", "b", "3", "4", "5"]
    assert [record["verdict"] or None for record in records] == ["true", None, None, "false", None]
    assert [bool(record["error"]) for record in records] == [False, True, True, False, True]
    assert records[1]["error"].startswith("own.jsonl, line 2, column 5: unexpected '='")


def test_published_equations_with_decimal_numbers_have_an_error(folder: Path) -> None:
    def of(functions: str, values: str) -> dict[str, object]:
        return {"equation": {"func": functions, "vars": values}, "label": "1"}

    equations = [of("Equality,Number,#,#,Number,#,#", ",0.5,,,0.5,,"), of("Equality,Pi,#,#,Pi,#,#", ",pi,,,pi,,")]
    (folder / "own.json").write_text(json.dumps([equations]))
    assert main(["label", "own.json", "-o", "labelled.jsonl"]) == 0
    first, second = (record.fields for record in read_records(folder / "labelled.jsonl"))
    assert "decimal numbers" in first["error"]
    assert (second["id"], second["verdict"]) == ("depth 0, record 2", "true")


def test_double_signs_cost_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    evaluate = evaluation.evaluate_exactly

    def counted(table: ExpressionTable, expression: int, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(table.postorder(expression)))
        return evaluate(table, expression, *arguments, **options)

    monkeypatch.setattr(evaluation, "evaluate_exactly", counted)
    texts = ["-" * 999 + "x = -x", "-" * 999 + "x = x", "-(-(x + y)) = --y - -x", "x/--0 = 1"]
    found = labelling.verdicts(Forest.from_trees(map(parse_equation, texts)))
    assert [each.verdict for each in found] == ["true", "false", "true", "undecided"]
    assert max(sizes) < 10
