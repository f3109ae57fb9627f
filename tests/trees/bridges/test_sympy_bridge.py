from __future__ import annotations

import json
from pathlib import Path

import pytest
import sympy
from hypothesis import given
from sympy.abc import a, b, x, y, z
from trees.random_equations import PROPERTY, equations

from treemem.errors import GraphError, ParseError, VocabularyError
from treemem.trees.bridges.sympy import tree_from_sympy, tree_to_sympy
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.formats.preorder import parse_preorder
from treemem.trees.tree import Tree


@given(tree=equations())
@PROPERTY
def test_a_tree_comes_back_from_sympy_as_it_went(tree: Tree) -> None:
    assert Tree.from_sympy(tree.to_sympy()) == tree


@given(tree=equations(numeric=True))
@PROPERTY
def test_a_numeric_tree_comes_back_from_sympy_as_it_went(tree: Tree) -> None:
    expected = parse_brackets(str(tree).replace("Number=0.7 ", "Float:0.7 ").replace("Number=0.7)", "Float:0.7)"))
    assert Tree.from_sympy(tree.to_sympy(), numeric=True) == expected


def test_published_equations_come_back_from_sympy_as_they_went(shared_data: Path) -> None:
    for line in (shared_data / "equations/published_sample.jsonl").read_text().splitlines():
        tree = parse_preorder(json.loads(line)["preorder"])
        assert tree_from_sympy(tree_to_sympy(tree)) == tree


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (sympy.Eq(sympy.sin(x) ** 2 + sympy.cos(x) ** 2, 1), "cos(x)^2 + sin(x)^2 = 1"),
        (sympy.Add(x, y, z, evaluate=False), "x + y + z"),
        (sympy.Mul(z, y, x, evaluate=False), "z*y*x"),
        (x - y, "x - y"),
        (x / y, "x/y"),
        (sympy.sqrt(x), "sqrt(x)"),
        (sympy.log(x), "log(x)"),
        (sympy.log(x, 2, evaluate=False), "log(x, 2)"),
        (sympy.Eq(sympy.exp(x), sympy.E, evaluate=False), "exp(x) = e"),
        (sympy.Integer(17) * x, "(10 + 7)*x"),
        (sympy.Integer(-4), "-4"),
        (sympy.Rational(2, 5) * x, "2/5*x"),
        (sympy.Rational(-3, 7), "(-3)/7"),
        (sympy.Float("0.7"), "0.7"),
        (sympy.Float("2.5"), "2.5"),
        (sympy.Float("1e-400"), "1e-400"),
        (sympy.Float("0.1234567890123456789", 30), "0.1234567890123456789"),
        (-sympy.oo, "-oo"),
        (sympy.nan, "nan"),
        (sympy.pi, "pi"),
    ],
)
def test_sympy_expressions_are_read_as_they_stand(expression: sympy.Basic, text: str) -> None:
    read = parse_equation if "=" in text else parse_expression
    assert tree_from_sympy(expression) == read(text, variables="indexed")


def test_trees_become_unevaluated_sympy() -> None:
    expression = parse_equation("x - x = 1*0").to_sympy()
    assert isinstance(expression, sympy.Eq)
    assert expression.lhs.args == (x, sympy.Mul(-1, x, evaluate=False))
    assert expression.rhs.args == (sympy.Integer(1), sympy.Integer(0))
    assert expression.doit() == sympy.true


def test_an_expression_has_the_value_that_sympy_gives_it() -> None:
    expression = parse_expression("log(x, 2)^2/(1 + y) - acoth(3*z)", variables="indexed").to_sympy()
    plain = sympy.log(x, 2) ** 2 / (1 + y) - sympy.acoth(3 * z)
    values = {x: 0.3, y: 1.7, z: 0.9}
    assert abs(sympy.N((expression - plain).subs(values))) < 1e-12


def test_symbols_are_numbered_by_name_where_all_names_are_published() -> None:
    assert str(tree_from_sympy(sympy.Add(z, y, evaluate=False))) == "(Add Symbol:var_2 Symbol:var_1)"
    assert (
        str(tree_from_sympy(sympy.Add(b, a, b, evaluate=False))) == "(Add Symbol:var_0 (Add Symbol:var_1 Symbol:var_0))"
    )
    appearance = tree_from_sympy(sympy.Add(z, y, evaluate=False), variables="appearance")
    assert str(appearance) == "(Add Symbol:var_0 Symbol:var_1)"
    with pytest.raises(ParseError, match="unknown variable 'a'"):
        tree_from_sympy(a, variables="indexed")
    with pytest.raises(VocabularyError, match="'k10' is variable number 11"):
        tree_from_sympy(sympy.Add(*sympy.symbols("k:11"), evaluate=False))


def test_own_functions_go_through_sympy_when_declared() -> None:
    tree = parse_expression("f(x, y)", functions={"f": 2})
    assert tree_from_sympy(tree.to_sympy(), functions={"f": 2}) == tree
    assert Tree.from_sympy(tree.to_sympy(), functions={"f": 2}) == tree
    with pytest.raises(GraphError, match="no sympy node 'f'"):
        tree_from_sympy(tree.to_sympy())


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (sympy.I, "'ImaginaryUnit'"),
        (sympy.zoo, "'ComplexInfinity'"),
        (sympy.gamma(x), "'gamma'"),
        (sympy.Abs(x), "'Abs'"),
        (sympy.Function("sinn")(x), "'sinn'; did you mean sin"),
        (sympy.Integral(x, x), "'Integral'"),
        (x < y, "'StrictLessThan'"),
        (sympy.true, "'BooleanTrue'; sympy has evaluated an equation away, build it with evaluate=False"),
        (sympy.Integer(10) ** 1000, "an integer of 3322 bits; at most 1000 digits"),
        (sympy.Integer(10) ** 2000, "an integer of 6644 bits"),
        (sympy.Symbol("x") + sympy.Symbol("x", positive=True), "two different symbols have the name 'x'"),
        ("x + 1", "not 'x + 1'; read a text with the parser, parse_equation"),
    ],
)
def test_what_equation_trees_do_not_have_is_named(expression: object, said: str) -> None:
    with pytest.raises(GraphError) as caught:
        tree_from_sympy(expression)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("brackets", "error", "said"),
    [
        ("(Add Pi:pi Pi:pi Pi:pi)", GraphError, "Add takes 2 arguments, not 3"),
        ("(sin (Equality Pi:pi Pi:pi))", GraphError, "Equality can only be the root"),
        ("(sin Number)", GraphError, "'Number' has the value None"),
        ("(sin Integer:77)", VocabularyError, "no leaf 'Integer:77'"),
        ('("my f" Pi:pi)', VocabularyError, "'my f'"),
    ],
)
def test_a_tree_that_is_no_equation_is_refused(brackets: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        tree_to_sympy(parse_brackets(brackets))
    assert said in str(caught.value)


def test_the_recursion_limit_of_sympy_is_answered_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*arguments: sympy.Basic, evaluate: bool) -> sympy.Basic:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(sympy, "sin", give_up)
    with pytest.raises(GraphError, match="sympy works by recursion and gives up on a tree of height 2"):
        parse_expression("1 + sin(x)").to_sympy()
