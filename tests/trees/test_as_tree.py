"""Trees from nested data."""

from __future__ import annotations

import ast

import pytest

from treemem.errors import GraphError, ParseError
from treemem.trees import Forest, Tree, as_tree


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("x", "x"),
        (3, "3"),
        (["f", "x", ("g", 3)], "(f x (g 3))"),
        ({"label": "f", "children": ["x", {"type": "num", "value": 2.5}]}, "(f x (num 2.5))"),
        ({"op": "neg", "args": [["f"]]}, "(neg f)"),
        (ast.parse("x + f(3, -y)", mode="eval"), "(Add x (Call f 3 (USub y)))"),
        (ast.parse("a < b <= 'c'", mode="eval"), "(\"Lt LtE\" a b 'c')"),
        (
            ast.parse("def f(x): return x.real"),
            "(Module (FunctionDef f (arguments (arg x)) (Return (Attribute x real))))",
        ),
    ],
)
def test_nested_data_are_trees(data: object, text: str) -> None:
    assert str(as_tree(data)) == text


def test_sympy_expressions_keep_all_their_functions() -> None:
    sympy = pytest.importorskip("sympy")
    x, y = sympy.symbols("x y")
    expression = sympy.Max(sympy.Function("g")(x), sympy.Piecewise((x, x > 1), (2, True)), evaluate=False)
    assert sorted(map(str, as_tree(expression).children)) == [
        "(Piecewise (ExprCondPair x (StrictGreaterThan x 1)) (ExprCondPair 2 True))",
        "(g x)",
    ]
    assert as_tree(sympy.Add(x, y, 2)).arity == 3


def test_numbers_are_values_if_asked() -> None:
    tree = as_tree(["f", 3, {"label": "num", "value": 0.5}, ast.parse("7", mode="eval")], number="Number")
    assert [(leaf.label, leaf.value) for leaf in tree.children] == [("Number", 3.0), ("num", 0.5), ("Number", 7.0)]


def test_a_list_of_a_hundred_thousand_levels_is_a_tree() -> None:
    data: list[object] = ["x"]
    for _ in range(100_000):
        data = ["f", data]
    assert as_tree(data).height == 100_000


@pytest.mark.parametrize(
    "data", [[], [["f"], "x"], [1, "x"], {"children": []}, {"label": "f", "children": "x"}, None, object()]
)
def test_other_data_are_refused(data: object) -> None:
    with pytest.raises(GraphError):
        as_tree(data)


def test_children_may_be_labels_and_numbers() -> None:
    assert Tree("f", ["x", 3]) == Tree("f", [Tree("x"), Tree("3")])
    with pytest.raises(GraphError, match="put the single 'xy' in a list"):
        Tree("f", "xy")


def test_a_forest_is_made_of_all_forms() -> None:
    forest = Forest.from_trees(["(f x y)", ["g", 1], {"label": "h"}, Tree("f", ["x"])])
    assert [str(tree) for tree in forest] == ["(f x y)", "(g 1)", "h", "(f x)"]
    with pytest.raises(ParseError, match="line 2"):
        Forest.from_trees(["x", "(f x"])
    with pytest.raises(GraphError, match="item 1: a list describes"):
        Forest.from_trees(["x", []])


def test_a_forest_is_made_of_graphs() -> None:
    dgl = pytest.importorskip("treemem.dgl_import").import_dgl()
    trees = [Tree("f", ["x", "y"]), Tree("y")]
    graph = dgl.batch([tree.to_dgl(["x", "y", "f"]) for tree in trees])
    assert list(Forest.from_trees([graph, "x"], labels=["x", "y", "f"])) == [*trees, Tree("x")]
    with pytest.raises(GraphError, match="item 0: a DGLGraph needs labels"):
        Forest.from_trees([graph])
