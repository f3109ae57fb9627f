from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from treemem.runs import packed_answers
from treemem.runs.page_tables import error_table
from treemem.tasks.equation_verification.error_analysis import depth_records, equation_groups
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_equation

TEXTS = ["sin(x) = sin(x)", "x + y = y", "x*1 = x", "sin(x*y) = 2"]
TREES = [parse_equation(text) for text in TEXTS]


def test_equations_are_told_apart_by_edit_function_and_variables() -> None:
    forest = Forest.from_trees(TREES, tree_data={"label": [1, 0, 1, 0], "edit": [-1, 0, -1, 2]})
    groups = equation_groups(forest)
    found = {
        way: {name: np.flatnonzero(group).tolist() for name, group in kinds.items()} for way, kinds in groups.items()
    }
    assert found == {
        "label and edit": {"true": [0, 2], "false by grow": [1], "false by replace": [3]},
        "function": {"Add": [1], "Mul": [2, 3], "sin": [0, 3]},
        "variables": {"1": [0, 2], "2": [1, 3]},
    }


def test_errors_are_counted_by_kind() -> None:
    kinds = [
        {"way": "function", "group": "Add", "members": packed_answers(np.array([0, 1, 0, 0], bool))},
        {"way": "function", "group": "sin", "members": packed_answers(np.array([1, 0, 0, 1], bool))},
    ]
    run = {"right": {"test": packed_answers(np.array([1, 0, 1, 0], bool))}}
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in error_table({"net": [run]}, kinds).splitlines()
    ]
    assert lines[2:] == [["_function_", "", ""], ["Add", "1", "100.00"], ["sin", "2", "50.00"]]


def test_true_and_false_equations_are_counted_by_depth_once() -> None:
    forest = Forest.from_trees(TREES, tree_data={"label": [1, 0, 1, 0]})
    done: Any = SimpleNamespace(data={"mine": forest}, task=EquationVerification())
    (record,) = depth_records(done, [], sets=["mine"])
    assert record["true_and_false"] == {"2": [2, 1], "3": [0, 1]}
    assert list(depth_records(done, [record], sets=["mine"])) == []
