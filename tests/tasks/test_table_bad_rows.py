"""Bad rows of a table: training stops at the first one, or leaves them out and reports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

import treemem
from treemem import checkpoint
from treemem.cli.program import main
from treemem.errors import ParseError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.tasks.table import TableDataOptions, task_from_table

NETWORK = NetworkConfig("TreeRNN", {"hidden_size": 3})
OPTIONS = TrainingOptions(epochs=1, threads=1)


def rows(count: int = 30) -> list[dict[str, Any]]:
    return [{"tree": f"(f x{row} y)", "size": row + 0.5, "nodes": ["a", "b", "ab"[row % 2]]} for row in range(count)]


def test_a_tree_and_a_number_that_cannot_be_read_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = rows()
    table[3]["tree"], table[5]["size"], table[7]["tree"], table[9]["size"] = "(f x", "large", None, None
    options: dict[str, Any] = {"tree": "tree", "target": "size", "kind": "regression"}
    with pytest.raises(ParseError, match="row 4"):
        task_from_table(table, **options)
    task = task_from_table(table, **options, on_error="skip")
    data = task.make_data(TableDataOptions())
    assert [row["id"] for row in data.bad_rows] == [4, 8, 6]
    assert "is not closed" in data.bad_rows[0]["error"]
    assert data.bad_rows[2]["error"] == "row 6: size must be a finite number, not 'large'"
    assert len(data.forest) == 26
    assert "Bad rows left out: 3.\nRows without a target left out: 1." in data.card
    assert "rows left out: 3; the first: row 4, column 5: " in caplog.text
    fit(task, NETWORK, data, OPTIONS, output=tmp_path / "run")
    report = [json.loads(line) for line in (tmp_path / "run" / "bad_rows.jsonl").read_text().splitlines()]
    assert report == list(data.bad_rows)
    assert "on_error" not in treemem.load(tmp_path / "run").task.options
    good = task_from_table(rows(), **options)
    fit(good, NETWORK, good.make_data(TableDataOptions()), OPTIONS, output=tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "bad_rows.jsonl").exists(), "the report is of this run's rows"


def test_names_of_classes_are_no_bad_numbers(tmp_path: Path) -> None:
    table = pandas.DataFrame([{**row, "class": "ab"[number % 2]} for number, row in enumerate(rows())])
    table.index = pandas.date_range("2024-01-01", periods=30)
    table.iloc[3, 0] = "(f x"
    task = task_from_table(table, tree="tree", target="class", on_error="skip")
    data = task.make_data(TableDataOptions())
    place = "2024-01-04 00:00:00"
    assert [str(row["id"]) for row in data.bad_rows] == [place]
    assert data.bad_rows[0]["error"].startswith(f"row {place}, column 5: the node 'f' is not closed")
    assert len(data.forest) == 29
    fit(task, NETWORK, data, OPTIONS, output=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "bad_rows.jsonl").read_text())["id"] == place


def test_good_rows_with_the_index_of_a_bad_one_stay() -> None:
    table = pandas.concat([pandas.DataFrame(rows(10)), pandas.DataFrame(rows(10))])
    table["size"] = table["size"].astype(object)
    table.iloc[10, 0], table.iloc[11, 1] = "(f x", "large"
    data = task_from_table(table, tree="tree", target="size", kind="regression", on_error="skip").make_data(
        TableDataOptions()
    )
    assert [row["id"] for row in data.bad_rows] == [0, 1]
    assert len(data.forest) == 18
    assert data.forest.tree_data["label"][:2].tolist() == [[0.5], [1.5]]


def test_lists_of_another_length_than_the_tree_are_left_out() -> None:
    table = rows()
    table[2]["nodes"], table[4]["nodes"] = ["a"], "no list"
    with pytest.raises(RecipeError, match="row 3: 1 classes for a tree of 3 nodes"):
        task_from_table(table, tree="tree", target="nodes", kind="nodes")
    data = task_from_table(table, tree="tree", target="nodes", kind="nodes", on_error="skip").make_data(
        TableDataOptions()
    )
    assert [row["error"] for row in data.bad_rows] == [
        "row 3: 1 classes for a tree of 3 nodes",
        "row 5: nodes must be a list of classes, not 'no list'",
    ]
    assert len(data.forest) == 28


def test_a_command_leaves_out_broken_lines_and_writes_them_beside_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, recipe = tmp_path / "table.jsonl", tmp_path / "recipe.yaml"
    lines = [json.dumps(row) for row in rows()]
    lines[1:1] = ['{"tree": "x", "size": }', '{"size": 1.5}']
    file.write_text("\n".join(lines) + "\n")
    recipe.write_text(
        f"task: table_regression\ntask_options: {{path: '{file}', target: [size]}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 3}}}\n"
        "training: {epochs: 1, threads: 1, seed: 1}\n"
    )
    command = ["train", str(recipe), "-o", str(tmp_path / "run")]
    assert main([*command, "--on-error", "stop"]) == 2
    assert "table.jsonl, line 2" in capsys.readouterr().err
    assert main([*command, "--on-error", "skip"]) == 0
    text = (tmp_path / "run" / "Tree-RNN" / "seed-1" / "bad_rows.jsonl").read_text()
    assert [json.loads(line)["id"] for line in text.splitlines()] == [2, 3]
    assert main(["evaluate", str(tmp_path / "run" / "Tree-RNN")]) == 0, "the data of the run are read in the same way"


LINES = [
    "tree,size",
    "(f x y),5.5",
    "(f x,1.5",
    "(f x q),1.5",
    "(f y x),large",
    "(f x x),",
    "(f y y),4.5",
]
REPORT = [(3, "the node 'f' is not closed"), (5, "size must be a finite number, not 'large'"), (4, "unknown leaf 'q'")]


def test_a_model_is_scored_on_the_good_rows_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = task_from_table(
        [{"tree": "(f x y)", "size": 5.5}, {"tree": "(f y x)", "size": 4.5}], tree="tree", target="size"
    )
    checkpoint.save(tmp_path / "model", Model(task, NETWORK))
    file, scores = tmp_path / "test.csv", tmp_path / "scores.json"
    file.write_text("\n".join(LINES) + "\n")
    command = ["evaluate", str(tmp_path / "model"), str(file)]
    assert main(command) == 2
    assert "test.csv, line 3" in capsys.readouterr().err
    assert main([*command, "--on-error", "skip", "--json", str(scores)]) == 0
    printed = capsys.readouterr()
    assert "Bad rows left out: 3.\nRows without a target left out: 1." in printed.out
    assert "line 3, column 5: the node 'f' is not closed" in printed.err
    content = json.loads(scores.read_text())
    assert [row["id"] for row in content["bad_rows"]] == [line for line, _ in REPORT]
    assert all(problem in row["error"] for row, (_, problem) in zip(content["bad_rows"], REPORT, strict=True))
    assert content["scores"][-1]["examples"] == 2
    file.write_text(LINES[0] + "\n" + LINES[3] + "\n")
    assert main([*command, "--on-error", "skip"]) == 2
    assert "no row has a value in 'size'; the first bad row: " in capsys.readouterr().err
    assert main([*command[:2], "--on-error", "skip"]) == 2
    assert "--on-error is for the rows of DATA" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "wrong", "problem"),
    [
        ({"target": "c", "classes": ["a", "b"]}, {"c": "d"}, "no class 'd'"),
        ({"target": "c", "classes": ["a", "b"]}, {"c": ["a"]}, "a class is a text"),
        ({"target": ["p", "q"]}, {"q": 2}, "the label 'q' must be 1 or 0, not 2"),
        ({"target": "nodes", "classes": ["a", "b"]}, {"nodes": ["a", "b", "d"]}, "no class 'd'"),
        ({"target": "p", "weight": "w"}, {"w": -1}, "the weight 'w' must be 0 or more, not -1"),
        ({"target": "p", "weight": "w"}, {"w": "much"}, "the weight 'w' must be a finite number, not 'much'"),
    ],
)
def test_every_target_and_weight_that_is_none_is_a_bad_row(
    options: dict[str, Any], wrong: dict[str, Any], problem: str
) -> None:
    table = [{**row, "c": "ab"[place % 2], "p": place % 2, "q": 1, "w": 1} for place, row in enumerate(rows(6))]
    kind = {"kind": "nodes" if options["target"] == "nodes" else "labels" if "q" in options["target"] else "classes"}
    good = task_from_table(table, tree="tree", **options, **kind)
    table[3] |= wrong
    with pytest.raises(RecipeError, match="row 4: " + problem):
        task_from_table(table, tree="tree", **options, **kind).make_data(TableDataOptions())
    with pytest.raises(RecipeError, match="row 4: " + problem):
        good.read_examples(table)
    for data in (
        task_from_table(table, tree="tree", **options, **kind, on_error="skip").make_data(TableDataOptions()),
        good.read_good_examples(table, good.vocabulary),
    ):
        assert [row["id"] for row in data.bad_rows] == [4]
        assert problem in data.bad_rows[0]["error"]
        assert len(data.forest) == 5


def test_a_table_without_a_good_row_and_another_word_are_refused() -> None:
    bad = [{"tree": "(f", "size": 1.5}, {"tree": "(g", "size": 2.5}]
    with pytest.raises(RecipeError, match=r"there is no row that can be read: row 1, .* is not closed"):
        task_from_table(bad, tree="tree", target="size", on_error="skip")
    with pytest.raises(RecipeError, match="on_error='ignore' is none of stop, skip"):
        task_from_table(rows(), tree="tree", target="size", on_error="ignore")
