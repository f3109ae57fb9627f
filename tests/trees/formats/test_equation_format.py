from __future__ import annotations

import random

import pytest
from hypothesis import given
from trees.random_equations import PROPERTY, equations, expressions

from treemem.errors import GraphError, VocabularyError
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.tree import Tree


@given(tree=equations(), numeric=equations(numeric=True), expression=expressions())
@PROPERTY
def test_what_is_printed_parses_back_to_the_same_tree(tree: Tree, numeric: Tree, expression: Tree) -> None:
    assert parse_equation(format_equation(tree), variables="indexed") == tree
    assert parse_equation(format_equation(numeric), variables="indexed", numeric=True) == numeric
    assert parse_expression(format_equation(expression), variables="indexed", numeric=True) == expression


def test_small_trees_with_signs_and_quotients_all_parse_back() -> None:
    small = [Tree(label) for label in ("Symbol:var_0", "NegativeOne:-1", "Half:1/2", "Integer:-3")]
    small += [Tree(f"Integer:{integer}") for integer in (1, 2, 5)]
    for _ in range(2):
        chosen = random.Random(1).sample(small, k=min(len(small), 60))
        small += [Tree(label, [a, b]) for label in ("Add", "Mul", "Pow") for a in chosen for b in chosen]
    assert len(small) > 10_000
    for tree in small:
        text = format_equation(tree)
        assert parse_expression(text, variables="indexed") == tree, text


@pytest.mark.parametrize(
    ("brackets", "text"),
    [
        ("(Add Symbol:var_0 (Mul NegativeOne:-1 Symbol:var_1))", "x - y"),
        ("(Add Symbol:var_0 (Mul NegativeOne:-1 Integer:3))", "x - 3"),
        ("(Add Symbol:var_0 Integer:-3)", "x + (-3)"),
        ("(Mul NegativeOne:-1 Integer:3)", "(-1)*3"),
        ("Integer:-3", "-3"),
        ("(Mul NegativeOne:-1 (Mul Symbol:var_0 Symbol:var_1))", "-x*y"),
        ("(Mul (Mul NegativeOne:-1 Symbol:var_0) Symbol:var_1)", "(-x)*y"),
        ("(Mul NegativeOne:-1 (Mul NegativeOne:-1 Symbol:var_0))", "-(-x)"),
        ("(Mul Integer:2 (Pow Integer:5 NegativeOne:-1))", "2*5^(-1)"),
        ("Rational:2/5", "2/5"),
        ("(Mul Rational:2/5 Symbol:var_0)", "(2/5)*x"),
        ("(Mul Symbol:var_0 (Pow Symbol:var_1 NegativeOne:-1))", "x/y"),
        ("(Mul Symbol:var_0 (Pow (Pow Symbol:var_1 Integer:2) NegativeOne:-1))", "x/y^2"),
        ("(Pow (Pow Symbol:var_0 Integer:2) Integer:3)", "(x^2)^3"),
        ("(Pow Symbol:var_0 (Pow Integer:2 Integer:3))", "x^2^3"),
        ("(Pow Symbol:var_0 Half:1/2)", "sqrt(x)"),
        ("(Pow (Pow Symbol:var_0 Half:1/2) Integer:2)", "sqrt(x)^2"),
        ("(log Symbol:var_0 Exp1:E)", "log(x)"),
        ("(log Symbol:var_0 Integer:2)", "log(x, 2)"),
        ("(Add (Add Symbol:var_0 Symbol:var_4) Symbol:var_9)", "(x + v4) + v9"),
        ("(sin (Mul NegativeOne:-1 Pi:pi))", "sin(-pi)"),
        ("(Equality NaN:nan (Mul NegativeOne:-1 Infinity:oo))", "nan = -oo"),
        ("(Add Number=0.7 Number=-2.0)", "0.70 + (-2.0)"),
        ("(f Symbol:var_0 (g Symbol:var_1 Integer:1 Integer:2))", "f(x, g(y, 1, 2))"),
    ],
)
def test_trees_print_as_people_write(brackets: str, text: str) -> None:
    assert format_equation(parse_brackets(brackets)) == text


def test_leaves_that_say_the_same_read_back_as_one() -> None:
    assert parse_expression(format_equation(Tree("One:1"))) == Tree("Integer:1")
    assert parse_expression(format_equation(Tree("Rational:0"))) == Tree("Integer:0")


@pytest.mark.parametrize("label", ["Add", "Mul", "Pow", "log", "f"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_long_chain_prints_and_parses_back(label: str, side: int) -> None:
    leaf = chain = Tree("Symbol:var_0")
    for _ in range(20_000 if (label, side) in (("Add", 0), ("Pow", 1)) else 10_000):
        chain = Tree(label, [chain, leaf] if side == 0 else [leaf, chain])
    text = format_equation(chain)
    assert parse_expression(text, variables="indexed", functions={"f": 2}) == chain


@pytest.mark.parametrize(
    ("brackets", "error", "named"),
    [
        ("(Add Symbol:var_0 Symbol:var_1 Symbol:var_2)", GraphError, "Add takes 2 arguments, not 3; binarize"),
        ("(sin Symbol:var_0 Symbol:var_1)", GraphError, "sin takes 1 argument, not 2"),
        ("(Mul NegativeOne:-1)", GraphError, "Mul takes 2 arguments, not 1"),
        ("(Equality Symbol:var_0)", GraphError, "Equality takes 2 arguments, not 1"),
        ("(sin (Equality Symbol:var_0 Symbol:var_0))", GraphError, "Equality can only be the root"),
        ("(sin Number)", GraphError, "'Number' has the value None"),
        ("(sin Symbol:var_0=2)", GraphError, "'Symbol:var_0' has the value 2.0"),
        ("(sin Add)", GraphError, "Add takes 2 arguments, not 0"),
        ("(sin Integer:12)", VocabularyError, "'Integer:12'; did you mean Integer:2 or Integer:1"),
        ("(sin word)", VocabularyError, "'word'"),
        ('("my f" Symbol:var_0)', VocabularyError, "'my f'"),
        ("(sqrt Symbol:var_0)", VocabularyError, "'sqrt'"),
        ("(pi Symbol:var_0)", VocabularyError, "'pi'"),
    ],
)
def test_a_tree_without_a_spelling_is_refused(brackets: str, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        format_equation(parse_brackets(brackets))
