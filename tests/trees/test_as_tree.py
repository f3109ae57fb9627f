"""Trees from nested data."""

from __future__ import annotations

import ast
from typing import Any

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
            "(Module (FunctionDef f (arguments (args (arg x))) (Return (Attribute x real))))",
        ),
    ],
)
def test_nested_data_are_trees(data: object, text: str) -> None:
    assert str(as_tree(data)) == text


@pytest.mark.parametrize(
    ("code", "other"),
    [
        ("for i in x:\n  a\nelse:\n  b", "for i in x:\n  a\n  b"),
        ("a[1:]", "a[:1]"),
        ("a[::1]", "a[:1]"),
        ("f(a, b)", "f(a, b=b)"),
        ("f(a=b)", "f(**b)"),
        ("{**a, b: c}", "{b: a, **c}"),
        ("{**a}", "{None: a}"),
        ("x + 1", "x += 1"),
        ("[]", "List"),
        ("pass", "Pass"),
        ("return", "Return"),
        ("...", "Ellipsis"),
        ("inf", "1e999"),
        ("def f(a, *, b): pass", "def f(a, b): pass"),
        ("def f(a, b=1): pass", "def f(a, *, b=1): pass"),
        ("def f(*, a=1, b): pass", "def f(*, a, b=1): pass"),
        ("def f(*a): pass", "def f(**a): pass"),
        ("def f() -> x: y", "@x\ndef f(): y"),
        ("class C(a): b", "class C(metaclass=a): b"),
        ("from a import b", "from .a import b"),
        ("try: a\nfinally: b", "try: a\nexcept: b"),
        ("x: y", "x: y = 0"),
        ("lambda x: y", "lambda *x: y"),
        ("[x for y in z if a]", "[x for y in z for a in a]"),
        ("with a as b: c", "with a, b: c"),
    ],
)
def test_programs_of_different_meaning_are_different_trees(code: str, other: str) -> None:
    assert as_tree(ast.parse(code)) != as_tree(ast.parse(other))


def test_later_fields_of_python_code_are_under_their_names() -> None:
    assert str(as_tree(ast.parse("f(x, y=1)", mode="eval"))) == "(Call f x (keywords (keyword y 1)))"
    assert str(as_tree(ast.parse("while x: a\nelse: b").body[0])) == "(While x a (orelse b))"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"type": "Add", "left": "x", "right one": "y"}, "'Add' has the unknown fields 'left', 'right one'"),
        ({"type": "Name", "name": "x"}, "'Name' has the unknown fields 'name'"),
        ({"label": "f", "children": ["x"], "args": ["y"]}, "'f' has the unknown fields 'args'"),
        ({"label": "f", "children": ["x"], "value": 3}, "'f' has 'children' and 'value'; only a leaf has a value"),
    ],
)
def test_fields_of_a_dictionary_that_a_tree_does_not_have_are_named(data: dict[str, object], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        as_tree(data)


def test_the_arguments_of_a_sympy_function_keep_their_order() -> None:
    sympy = pytest.importorskip("sympy")
    x, y = sympy.symbols("x y")
    assert str(as_tree(sympy.Function("g")(y, x, 1))) == "(g y x 1)"
    total = y + x + 1
    assert [leaf.label for leaf in as_tree(total).children] == [str(part) for part in total.args]
    assert as_tree(sympy.Symbol("x", positive=True)) == as_tree(x)


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


@pytest.mark.parametrize("value", [10**400, "abc", [1]])
def test_what_is_no_finite_number_is_no_value(value: Any) -> None:
    with pytest.raises(GraphError, match="the value of 'N' must be a finite number, not"):
        Tree("N", value=value)
    if isinstance(value, int):
        with pytest.raises(GraphError, match="the value of 'N' must be a finite number, not"):
            as_tree(["f", value], number="N")


def test_a_list_of_a_hundred_thousand_levels_is_a_tree() -> None:
    data: list[object] = ["x"]
    for _ in range(20_000):
        data = ["f", data]
    assert as_tree(data).height == 20_000


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
