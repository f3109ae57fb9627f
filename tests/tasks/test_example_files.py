"""What a task writes to a file of examples, its own reader reads back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_task import MoreX, toy_data

from treemem.errors import ParseError, RecipeError
from treemem.records import write_records
from treemem.task import TASKS, Task
from treemem.tasks.logical_inference.readers import read_logic
from treemem.trees.forest import Forest

OPTIONS: dict[str, Mapping[str, Any]] = {
    "equation_verification": {"size": 150},
    "listops": {"training_size": 20, "validation_size": 10, "test_size": 10, "pool": 0},
    "logical_inference": {"size": 300, "max_operations": 5, "max_training_operations": 3},
}
RECORDS: dict[str, Mapping[str, Any]] = {
    "equation_verification": {"equation": "x = x"},
    "listops": {"tree": "[MAX 2 9 ]", "label": 9},
    "logical_inference": {"left": "a", "right": "a", "label": "="},
}
TASK_OPTIONS: list[tuple[str, Mapping[str, Any]]] = [
    ("equation_verification", {}),
    ("listops", {}),
    ("listops", {"form": "nary"}),
    ("logical_inference", {}),
    ("logical_inference", {"form": "operators"}),
]


def some_of(task: Task) -> Forest:
    """A few examples of each split."""
    forest = task.make_data(task.data_options(**OPTIONS[task.name])).forest
    examples = task.examples(forest)
    chosen = np.concatenate([examples.part(split)[:12] for split in ("train", "validation", "test")])
    trees = len(forest) // len(examples)
    return forest[(trees * chosen[:, None] + np.arange(trees)).ravel()]


@pytest.mark.parametrize(("name", "options"), TASK_OPTIONS, ids=str)
def test_written_examples_are_read_back_equal(name: str, options: Mapping[str, Any], tmp_path: Path) -> None:
    task = TASKS.find(name)(**options)
    forest = some_of(task)
    records = list(task.records_of(forest))
    assert {record["split"] for record in records} == {"train", "validation", "test"}
    if name == "listops":  # the number itself, where scores are given by bins of it
        assert [record["length"] for record in records] == [len(record["tree"].split()) for record in records]
    else:
        assert [record[task.group] for record in records] == task.examples(forest).group.tolist()
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"examples.{suffix}"
        write_records(path, records)
        found = task.read_examples(path)
        assert found.with_data() == forest.with_data()
        for field in ("label", "split"):
            assert found.tree_data[field].tolist() == forest.tree_data[field].tolist()


@pytest.mark.parametrize(("name", "options"), TASK_OPTIONS, ids=str)
def test_lines_of_text_hold_tree_and_label(name: str, options: Mapping[str, Any], tmp_path: Path) -> None:
    task = TASKS.find(name)(**options)
    forest = some_of(task)
    path = tmp_path / "examples.txt"
    write_records(
        path, ({column: record[column] for column in task.text_columns} for record in task.records_of(forest))
    )
    found = task.read_examples(path)
    assert found.tree_data["label"].tolist() == forest.tree_data["label"].tolist()
    assert "split" not in found.tree_data
    assert np.array_equal(found.arity, forest.arity)
    if name != "equation_verification":  # whose variables are numbered in order of appearance
        assert found.with_data() == forest.with_data()


def test_examples_without_splits_or_labels_say_none(tmp_path: Path) -> None:
    task = TASKS.find("equation_verification")()
    forest = Forest.from_trees([task.parse("y + x = x + y")])
    assert list(task.records_of(forest)) == [
        {"infix": "x + y = y + x", "tree": str(forest[0]), "label": None, "depth": 2}
    ]
    listops = TASKS.find("listops")()
    assert list(listops.records_of(Forest.from_trees([listops.parse("[MAX 2 9 ]")]))) == [
        {"label": None, "tree": "[MAX 2 9 ]", "length": 4}
    ]
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"examples.{suffix}"
        write_records(path, task.records_of(forest))
        assert task.read_examples(path).tree_data["label"].tolist() == [-1]
        write_records(path, listops.records_of(Forest.from_trees([listops.parse("[MAX 2 9 ]")])))
        assert listops.read_examples(path).tree_data["label"].tolist() == [-1]


@pytest.mark.parametrize(("name", "fields"), RECORDS.items())
def test_a_split_of_null_is_no_split(name: str, fields: Mapping[str, Any], tmp_path: Path) -> None:
    for suffix in ("jsonl", "parquet"):
        path = tmp_path / f"examples.{suffix}"
        write_records(path, [{**fields, "split": None}])
        assert "split" not in TASKS.find(name)().read_examples(path).tree_data


@pytest.mark.parametrize(("name", "fields"), RECORDS.items())
def test_a_split_that_is_none_is_named_with_its_line(name: str, fields: Mapping[str, Any], tmp_path: Path) -> None:
    path, task = tmp_path / "examples.jsonl", TASKS.find(name)()
    write_records(path, [{**fields, "split": "train"}, {**fields, "split": "tset"}])
    with pytest.raises(ParseError, match=r"examples\.jsonl, line 2.*the split is 'tset'; did you mean test"):
        task.read_examples(path)
    write_records(path, [{**fields, "split": "train"}, {**fields, "split": None}])
    with pytest.raises(RecipeError, match="some examples say no split, and others do"):
        task.examples(task.read_examples(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.txt", "left\tright\n( a ( and b ) )\ta\n=\ta\ta\n"),
        ("pairs.csv", "left,right,label\n( a ( and b ) ),a,\na,a,=\n"),
        (
            "pairs.jsonl",
            '{"left": "( a ( and b ) )", "right": "a", "label": null}\n{"left": "a", "right": "a", "label": "="}\n',
        ),
    ],
)
def test_a_pair_of_logic_may_have_no_label_where_it_is_no_training_data(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    task = TASKS.find("logical_inference")()
    data = task.examples(task.read_examples(tmp_path / name))
    assert data.labelled.tolist() == [False, True]
    with pytest.raises(ParseError, match=r", line [12]"):
        read_logic(tmp_path / name)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_without_examples_is_told(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("")
    with pytest.raises(RecipeError, match=r"there are no .* in .*empty\.txt"):
        TASKS.find(name)().read_examples(path)


def test_a_task_that_says_nothing_of_files_is_named() -> None:
    with pytest.raises(RecipeError, match="more_x does not say how its examples are written"):
        MoreX().records_of(toy_data(3))


def test_a_task_that_says_nothing_of_files_reads_examples_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_text("(f x y)\n(g x)\n")
    assert [str(tree) for tree in MoreX().read_examples(path)] == ["(f x y)", "(g x)"]
    path.write_text("(f x y)\n(f\n")
    with pytest.raises(ParseError, match="line 2"):
        MoreX().read_examples(path)
    with pytest.raises(RecipeError, match="cannot read"):
        MoreX().read_examples(tmp_path / "nowhere.jsonl")
