from __future__ import annotations

import random
from collections import Counter

from treemem.tasks.equation_verification.generation.editing import (
    EXCHANGE,
    GROW,
    REPLACE,
    SHRINK,
    Editor,
    WeightedLabels,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.trees.equation_parser import parse_equation


def _editor() -> tuple[ExpressionTable, Editor, int]:
    table = ExpressionTable()
    equation = table.from_tree(parse_equation("sin(x + 2)*3 = x"))
    return table, Editor(table, [equation]), equation


def _edits(kind: int, position: int) -> tuple[ExpressionTable, list[int]]:
    table, editor, equation = _editor()
    return table, [editor.edit(equation, kind, position, random.Random(seed)) for seed in range(200)]


def test_labels_are_drawn_as_often_as_they_occur() -> None:
    labels, rng = WeightedLabels({"sin": 6, "cos": 3, "tan": 1}), random.Random(0)
    drawn = Counter(labels.draw(rng) for _ in range(4000))
    assert [round(drawn[label] / 4000, 1) for label in ("sin", "cos", "tan")] == [0.6, 0.3, 0.1]
    assert "sin" not in {labels.draw(rng, "sin") for _ in range(100)}


def test_growing_puts_a_function_around_a_node() -> None:
    table, edited = _edits(GROW, 2)
    node = table.children[table.children[edited[0]][0]][0]
    around = [table.children[table.children[equation][0]][0] for equation in edited]
    assert {len(table.children[node]) for node in around} == {1, 2}
    grown = {table.size[equation] - 8 for equation in edited}
    assert grown == {1, 2}
    assert node in around


def test_shrinking_leaves_a_child() -> None:
    table, edited = _edits(SHRINK, 3)
    assert set(edited) == {table.from_tree(parse_equation(text)) for text in ("sin(x)*3 = x", "sin(2)*3 = x")}


def test_shrinking_a_leaf_changes_nothing() -> None:
    table, edited = _edits(SHRINK, 4)
    assert set(edited) == {table.from_tree(parse_equation("sin(x + 2)*3 = x"))}


def test_replacing_changes_a_label_and_keeps_the_children() -> None:
    table, edited = _edits(REPLACE, 1)
    assert {table.label[table.children[equation][0]] for equation in edited} == {"Add", "Pow"}
    table, edited = _edits(REPLACE, 2)
    functions = {table.label[table.children[table.children[equation][0]][0]] for equation in edited}
    assert "sin" not in functions
    assert functions <= {"cos", "tan", "cot", "sec", "csc"}


def test_powers_and_cofunctions_are_exchanged() -> None:
    table = ExpressionTable()
    equation = table.from_tree(parse_equation("sin(x^2) = tan(pi)"))
    editor = Editor(table, [equation])
    expected = {1: "cos(x^2) = tan(pi)", 2: "sin(2^x) = tan(pi)", 3: "sin(x^2) = tan(pi)", 5: "sin(x^2) = cot(pi)"}
    for position, text in expected.items():
        edited = editor.edit(equation, EXCHANGE, position, random.Random(0))
        assert edited == table.from_tree(parse_equation(text))


def test_a_leaf_is_replaced_by_another_one() -> None:
    table, edited = _edits(REPLACE, 7)
    leaves = {table.label[table.children[equation][1]] for equation in edited}
    assert "Symbol:var_0" not in leaves
    assert {"Symbol:var_1", "Integer:2", "Integer:3"} <= leaves
