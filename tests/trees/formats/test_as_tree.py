"""Trees from nested data."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from treemem.errors import GraphError, ParseError, RecipeError
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
        ("{**a, b: c}", "{b: a, **c}"),
        ("x + 1", "x += 1"),
        ("pass", "Pass"),
        ("def f(a, *, b): pass", "def f(a, b): pass"),
        ("def f(a, b=1): pass", "def f(a, *, b=1): pass"),
        ("def f(*, a=1, b): pass", "def f(*, a, b=1): pass"),
        ("def f() -> x: y", "@x\ndef f(): y"),
        ("from a import b", "from .a import b"),
        ("try: a\nfinally: b", "try: a\nexcept: b"),
        ("[x for y in z if a]", "[x for y in z for a in a]"),
    ],
)
def test_programs_of_different_meaning_are_different_trees(code: str, other: str) -> None:
    assert as_tree(ast.parse(code)) != as_tree(ast.parse(other))


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


def test_a_list_of_a_hundred_thousand_levels_is_a_tree() -> None:
    data: list[object] = ["x"]
    for _ in range(20_000):
        data = ["f", data]
    assert as_tree(data).height == 20_000


def test_children_may_be_labels_and_numbers() -> None:
    assert Tree("f", ["x", 3]) == Tree("f", [Tree("x"), Tree("3")])
    with pytest.raises(GraphError, match="put the single 'xy' in a list"):
        Tree("f", "xy")
    for value in (10**400, "abc", [1]):
        with pytest.raises(GraphError, match="the value of 'N' must be a finite number"):
            Tree("N", value=value)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the value of 'N' must be a finite number"):
        as_tree(["f", 10**400], number="N")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"type": "Add", "left": "x", "right one": "y"}, "'Add' .* 'left', 'right one'"),
        ({"type": "Name", "name": "x"}, "'Name' .* 'name'"),
        ({"label": "f", "children": ["x"], "args": ["y"]}, "'f' .* 'args'"),
        ({"label": "f", "children": ["x"], "value": 3}, "'f' .* only a leaf has a value"),
        ({"type": "Module", "children": [1, 4]}, "py150"),
        ([{"type": "Module", "children": [1]}, {"type": "Name", "value": "x"}], "py150"),
        ({"type": "Return", "value": {"type": "Name"}}, "the value of 'Return'"),
        (["f", float("nan")], "NaN is no tree"),
        (["f", np.float32("nan")], "NaN is no tree"),
        ("(f x y)", "this looks like brackets; parse_brackets"),
        ('["f", "x"]', "this looks like JSON"),
        (["f", 10**5000], "an integer of 16,610 bits"),
        ([10**5000], "not list data"),
        *((data, ".") for data in ([], [["f"], "x"], [1, "x"], {"children": []}, None, object())),
        ({"label": "f", "children": "x"}, "."),
    ],
)
def test_data_that_are_no_tree_or_another_one_are_refused(data: object, named: str) -> None:
    with pytest.raises(GraphError, match=named):
        as_tree(data)


def test_a_forest_is_made_of_all_forms() -> None:
    forest = Forest.from_trees(["(f x y)", ["g", 1], {"label": "h"}, Tree("f", ["x"])])
    assert [str(tree) for tree in forest] == ["(f x y)", "(g 1)", "h", "(f x)"]
    with pytest.raises(ParseError, match="line 2"):
        Forest.from_trees(["x", "(f x"])
    with pytest.raises(GraphError, match="item 2: a list describes"):
        Forest.from_trees(["x", []])


def test_a_forest_is_made_of_graphs() -> None:
    dgl = pytest.importorskip("treemem.dgl_import").import_dgl()
    trees = [Tree("f", ["x", "y"]), Tree("y")]
    graph = dgl.batch([tree.to_dgl(["x", "y", "f"]) for tree in trees])
    assert list(Forest.from_trees([graph, "x"], labels=["x", "y", "f"])) == [*trees, Tree("x")]
    with pytest.raises(GraphError, match="item 1: a DGLGraph needs labels"):
        Forest.from_trees([graph])


def test_numbers_and_arrays_of_numpy_are_trees() -> None:
    data = np.array(
        ["f", np.int64(3), np.array(["g", np.float32(0.1)], object), {"label": "h", "children": None}], object
    )
    assert str(as_tree(data)) == "(f 3 (g 0.1) h)"
    children = np.array([{"label": "x", "value": None, "children": None}, np.int8(2)], object)
    assert str(as_tree({"label": "f", "children": children})) == "(f x 2)"
    assert as_tree(["f", np.int64(3)], number="N").children[0].value == 3.0


def test_an_empty_value_beside_children_says_nothing() -> None:
    leaf = {"type": "Name", "value": "x", "children": []}
    assert str(as_tree({"type": "Assign", "value": "", "children": [leaf]})) == "(Assign (Name x))"
    assert as_tree({"type": "Pass", "value": "", "children": []}) == Tree("Pass")
    assert as_tree({"type": "Str", "value": ""}) == Tree("Str", [""])


def test_sympy_names_that_mean_two_things_are_told_apart_or_refused() -> None:
    sympy = pytest.importorskip("sympy")
    x = sympy.Symbol("x")
    assert str(as_tree(sympy.Function("gamma")(x))) == "(Function:gamma x)"
    assert str(as_tree(sympy.gamma(x))) == "(gamma x)"
    assert as_tree(sympy.Dummy("x")) == Tree("Dummy:x") != as_tree(sympy.Symbol("_x"))
    assert str(as_tree(sympy.Symbol("x y") + 1)) == '(Add 1 "x y")'
    for name in ("E", "I", "pi", "oo", "nan", "True", "1", "1/2", "-3", "2.5", "Symbol:E"):
        assert as_tree(sympy.Symbol(name)) == Tree(f"Symbol:{name}")
    for expression, named in (
        (x + sympy.Symbol("x", positive=True), "two different symbols of this tree have the name 'x'"),
        (sympy.Dummy("x") + sympy.Dummy("x"), "two different symbols"),
        (sympy.factorial(2000) + x, "an integer of 19,053 bits"),
    ):
        with pytest.raises(GraphError, match=named):
            as_tree(expression)


def test_texts_of_a_forest_may_have_another_form() -> None:
    forest = Forest.from_trees(["( - ( -4 6 ) )"], text="unlabelled")
    assert str(forest[0]) == "(X - (X -4 6))"
    assert str(Forest.from_trees(["x+1"], text="expression")[0]) == "(Add Symbol:var_0 Integer:1)"
    with pytest.raises(RecipeError, match=r'look unlabelled.*text="unlabelled".*text="labelled"'):
        Forest.from_trees(["( - ( -4 6 ) )", "( + ( -10 9 ) )"])
    assert str(Forest.from_trees(["( - ( -4 6 ) )"], text="labelled")[0]) == "(- (-4 6))"
