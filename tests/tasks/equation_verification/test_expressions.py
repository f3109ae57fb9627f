from __future__ import annotations

import random

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.trees.equation_parser import parse_equation, parse_expression
from treemem.trees.forest import Forest


def _number(table: ExpressionTable, text: str) -> int:
    return table.from_tree(parse_equation(text, variables="indexed"))


def test_equal_subexpressions_are_one_number() -> None:
    table = ExpressionTable()
    equation = table.from_tree(parse_equation("sin(x)*y + sin(x) = sin(x)"))
    left, right = table.children[equation]
    assert table.children[left][1] == right
    assert table.children[table.children[left][0]][0] == right
    assert (table.size[equation], table.height[equation], table.variable_indexes(equation)) == (10, 4, [0, 1])
    assert len(table.subexpressions([equation])) == 6


def test_every_position_is_reached_and_replaced() -> None:
    table = ExpressionTable()
    tree = parse_expression("sin(x)*(y + 2^x)")
    expression = table.from_tree(tree)
    labels = [table.label[table.path_to(expression, position)[-1][0]] for position in range(tree.size)]
    assert labels == [node.label for node in tree.preorder()]
    replaced = table.replace_at(table.path_to(expression, 6), table.from_tree(parse_expression("pi")))
    assert replaced == table.from_tree(parse_expression("sin(x)*(y + pi^x)"))


def test_variables_are_substituted_all_at_once() -> None:
    table = ExpressionTable()
    x, y = (table.make(f"Symbol:var_{index}") for index in (0, 1))
    before, after = (table.from_tree(parse_expression(text, variables="indexed")) for text in ("x^y + 2", "y^x + 2"))
    assert table.substitute(before, {x: y, y: x}) == after


def test_canonical_form_ignores_names_and_sides_and_nothing_else() -> None:
    table = ExpressionTable()
    same = ["x^y + z = y*z", "y^x + w = x*w", "z*w = x^z + w", "v9*v5 = v7^v9 + v5"]
    keys = {table.canonical_equation(_number(table, text)) for text in same}
    assert len(keys) == 1
    for other in ("x^y + z = z*y", "x^y + z = x*z", "x^y + z = y*y", "z + x^y = y*z", "x^y + z = y*z + 0"):
        assert table.canonical_equation(_number(table, other)) not in keys


def test_canonical_form_does_not_depend_on_the_order_of_construction() -> None:
    texts = ["sin(y) = x + y", "x + z = sin(z)", "x = x", "y = y", "x = y", "y*1 = x", "z = x*1"]
    groups = []
    for seed in range(5):
        table = ExpressionTable()
        order = random.Random(seed).sample(texts, len(texts))
        keys = {text: table.canonical_equation(_number(table, text)) for text in order}
        groups.append({(a, b) for a in texts for b in texts if keys[a] == keys[b] and a < b})
    assert all(group == groups[0] for group in groups)
    assert groups[0] == {("sin(y) = x + y", "x + z = sin(z)"), ("x = x", "y = y"), ("y*1 = x", "z = x*1")}


def test_forests_are_read_and_written() -> None:
    table = ExpressionTable()
    texts = ["x = x", "sin(x)*y + sin(x) = sin(x)", "x = x", "2^pi = x"]
    forest = Forest.from_trees([parse_equation(text) for text in texts], tree_data={"label": [1, 0, 1, 0]})
    equations = table.from_forest(forest)
    assert equations == [table.from_tree(tree) for tree in forest]
    assert table.to_forest(equations, forest.tree_data) == forest
    assert len(table.to_forest([])) == 0
