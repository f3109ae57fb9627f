from __future__ import annotations

import json
import operator
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path

import mpmath
import pytest

from treemem.errors import ParseError, VocabularyError
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.labels import UNARY_FUNCTIONS
from treemem.trees.formats.equations.parser import parse_equation, parse_equation_sides, parse_expression
from treemem.trees.formats.preorder import parse_preorder
from treemem.trees.tree import Tree

VARIABLES = {f"var_{index}": name for index, name in enumerate("xyzwuvpqrs")}


def written(tree: Tree) -> str:
    """``tree`` as ``Add(x, Mul(-1, y))``; a ``Number`` leaf as ``<2.5>``."""
    if tree.value is not None:
        return f"<{tree.value}>"
    if not tree.children:
        name = tree.label.partition(":")[2]
        return VARIABLES.get(name, name)
    return f"{tree.label}({', '.join(written(child) for child in tree.children)})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("sin(x)^2 + cos(x)^2 = 1", "Equality(Add(Pow(sin(x), 2), Pow(cos(x), 2)), 1)"),
        ("x ** 2 == 4", "Equality(Pow(x, 2), 4)"),
        ("\tx\n= \r\n 1\n", "Equality(x, 1)"),
        ("x\u00a0= 1", "Equality(x, 1)"),
        ("log(x, 2) = log(x)", "Equality(log(x, 2), log(x, E))"),
        ("sqrt(x) = e", "Equality(Pow(x, 1/2), E)"),
        ("pi = E", "Equality(pi, E)"),
        ("oo = nan", "Equality(oo, nan)"),
        # parentheses decide, and bare chains nest to the right
        ("x + y + z", "Add(x, Add(y, z))"),
        ("(x + y) + z", "Add(Add(x, y), z)"),
        ("x - y", "Add(x, Mul(-1, y))"),
        ("x - y - z", "Add(x, Add(Mul(-1, y), Mul(-1, z)))"),
        ("x - y + z", "Add(x, Add(Mul(-1, y), z))"),
        ("x - (y - z)", "Add(x, Mul(-1, Add(y, Mul(-1, z))))"),
        ("x/y", "Mul(x, Pow(y, -1))"),
        ("x/y*z", "Mul(x, Mul(Pow(y, -1), z))"),
        ("x/y/z", "Mul(x, Mul(Pow(y, -1), Pow(z, -1)))"),
        ("x/y^2", "Mul(x, Pow(Pow(y, 2), -1))"),
        ("x^y^z", "Pow(x, Pow(y, z))"),
        ("-x", "Mul(-1, x)"),
        ("--x", "Mul(-1, Mul(-1, x))"),
        ("-x*y", "Mul(-1, Mul(x, y))"),
        ("(-x)*y", "Mul(Mul(-1, x), y)"),
        ("x*-y*z", "Mul(x, Mul(Mul(-1, y), z))"),
        ("x/-y*z", "Mul(x, Mul(Pow(Mul(-1, y), -1), z))"),
        ("x + -y*z", "Add(x, Mul(-1, Mul(y, z)))"),
        ("-x^2", "Mul(-1, Pow(x, 2))"),
        ("2^-x", "Pow(2, Mul(-1, x))"),
        # a literal of the table of leaves is one leaf
        ("-3", "-3"),
        ("-3*x", "Mul(-3, x)"),
        ("x - 3", "Add(x, Mul(-1, 3))"),
        ("x - -3", "Add(x, Mul(-1, -3))"),
        ("-(3)", "Mul(-1, 3)"),
        ("-3^2", "Mul(-1, Pow(3, 2))"),
        ("(-3)^2", "Pow(-3, 2)"),
        ("2^-1", "Pow(2, -1)"),
        ("--3", "Mul(-1, -3)"),
        ("2/5", "2/5"),
        ("2/5*x", "Mul(2/5, x)"),
        ("x/2/5", "Mul(x, Mul(Pow(2, -1), Pow(5, -1)))"),
        ("x^2/5", "Mul(Pow(x, 2), Pow(5, -1))"),
        ("x^(2/5)", "Pow(x, 2/5)"),
        ("2/5^x", "Mul(2, Pow(Pow(5, x), -1))"),
        ("(2)/5", "Mul(2, Pow(5, -1))"),
        ("x - 1/2", "Add(x, Mul(-1, 1/2))"),
        ("-1/2", "-1/2"),
        ("-1/2^x", "Mul(-1, Pow(Pow(2, x), -1))"),
        ("x/-1/2", "Mul(x, Mul(Pow(-1, -1), Pow(2, -1)))"),
        ("3/5", "Mul(3, Pow(5, -1))"),
        ("0.7", "0.7"),
        (".70", "0.7"),
        ("0.5", "1/2"),
        ("0.4", "2/5"),
        ("1.", "1"),
        ("-0", "Mul(-1, 0)"),
        # other literals are composed of leaves
        ("17", "Add(10, 7)"),
        ("20", "Mul(2, 10)"),
        ("25", "Add(Mul(2, 10), 5)"),
        ("100", "Pow(10, 2)"),
        ("1005", "Add(Pow(10, 3), 5)"),
        ("256", "Add(Mul(Add(Mul(2, 10), 5), 10), 6)"),
        ("-17", "Mul(-1, Add(10, 7))"),
        ("2.5", "Mul(Add(Mul(2, 10), 5), Pow(10, -1))"),
        ("0.001", "Pow(10, -3)"),
        ("2e-4", "Mul(2, Pow(10, Mul(-1, 4)))"),
        ("3e7", "Mul(3, Pow(10, 7))"),
        ("1e9999", "Pow(10, Add(Mul(Add(Mul(Add(Mul(9, 10), 9), 10), 9), 10), 9))"),
    ],
)
def test_texts_are_read_as_people_write_them(text: str, tree: str) -> None:
    read = parse_equation if "=" in text else parse_expression
    assert written(read(text)) == written(read(text.encode())) == tree


@pytest.mark.parametrize("function", UNARY_FUNCTIONS)
def test_every_unary_function_is_known(function: str) -> None:
    assert parse_expression(f"{function}(x)") == Tree(function, [Tree("Symbol:var_0")])


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("sin(2.5) = 0.6", "Equality(sin(<2.5>), <0.6>)"),
        ("17 = -17", "Equality(<17.0>, <-17.0>)"),
        ("2.0 = 2", "Equality(<2.0>, 2)"),
        ("0.7 = 0.70", "Equality(0.7, <0.7>)"),
        ("-2.5*x = 1e-3", "Equality(Mul(<-2.5>, x), <0.001>)"),
        ("-2.5^2 = 3", "Equality(Mul(-1, Pow(<2.5>, 2)), 3)"),
        ("-3 = 2/5", "Equality(-3, 2/5)"),
        ("3/7 = x - 2.5", "Equality(Mul(3, Pow(7, -1)), Add(x, Mul(-1, <2.5>)))"),
    ],
)
def test_in_numeric_mode_other_literals_are_number_leaves(text: str, tree: str) -> None:
    assert written(parse_equation(text, numeric=True)) == tree


class Undecided(Exception):
    """A value that rounding could turn into another one."""


class Value:
    """A complex number of 60 digits that refuses to be huge, tiny or almost real."""

    def __init__(self, number: object) -> None:
        number = mpmath.mpmathify(number)
        parts = [abs(mpmath.re(number)), abs(mpmath.im(number))]
        if not mpmath.isfinite(number) or any(0 < part < 1e-9 for part in parts) or max(parts) > 1e9:
            raise Undecided
        self.number = number

    def __neg__(self) -> Value:
        return Value(-self.number)

    def __pos__(self) -> Value:
        return self


def applied(name: str) -> Callable[[Value, Value], Value]:
    return lambda one, other: Value(getattr(operator, name)(one.number, other.number))


for name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(Value, f"__{name}__", applied(name))
NAMES: dict[str, Value] = {
    "x": Value(mpmath.mpc("0.37", "0.61")),
    "y": Value(mpmath.mpc("1.3", "-0.45")),
    "z": Value(mpmath.mpc("-0.8", "0.29")),
    "pi": Value(mpmath.pi + 0),
    "e": Value(mpmath.e + 0),
}
CALLS: dict[str, Callable[..., Value]] = {
    "sin": lambda value: Value(mpmath.sin(value.number)),
    "exp": lambda value: Value(mpmath.exp(value.number)),
    "sqrt": lambda value: Value(mpmath.sqrt(value.number)),
    "log": lambda value, base=NAMES["e"]: Value(mpmath.log(value.number) / mpmath.log(base.number)),
}


def value_of_text(text: str) -> Value:
    """What Python makes of ``text``: its own operator precedence over exact literals."""
    source = re.sub(r"(?<![\w.])[\d.]+", lambda match: f"Value('{match.group()}')", text).replace("^", "**")
    return eval(source, {"Value": Value, **NAMES, **CALLS})


def value_of_tree(tree: Tree) -> Value:
    children = [value_of_tree(child) for child in tree.children]
    if tree.label in ("Add", "Mul", "Pow"):
        return getattr(operator, tree.label.lower())(*children)  # type: ignore[no-any-return]
    if children:
        return CALLS[tree.label](*children)
    name = tree.label.partition(":")[2]
    if name.startswith("var_"):
        return NAMES[VARIABLES[name]]
    numerator, _, denominator = name.partition("/")
    return NAMES[name.lower()] if name in ("pi", "E") else Value(mpmath.mpf(numerator) / mpmath.mpf(denominator or 1))


def random_text(draw: random.Random, depth: int) -> str:
    """Operands, signs and operators in any order that is an expression."""
    text = ""
    for position in range(draw.choice((1, 2, 2, 3, 3, 4, 5))):
        if position:
            text += draw.choice(("+", "-", "*", "/", "*", "/", "^", " - ", " + ", "*", "/"))
        text += draw.choice(("", "", "", "", "-", "-", "+", "--", "-+"))
        if depth == 0 or draw.random() < 0.6:
            text += draw.choice(("x", "y", "z", "e", "pi", "1", "2", "3", "5", "0.7", "17", "2.5", "1/2", "2/5", "1"))
        elif draw.random() < 0.5:
            text += f"({random_text(draw, depth - 1)})"
        elif draw.random() < 0.7:
            text += f"{draw.choice(('sin', 'exp', 'sqrt', 'log'))}({random_text(draw, depth - 1)})"
        else:
            text += f"log({random_text(draw, depth - 1)}, {random_text(draw, depth - 1)})"
    return text


def test_the_tree_of_a_text_has_the_value_of_the_text() -> None:
    draw = random.Random(7)
    compared = 0
    with mpmath.workdps(60):
        for _ in range(1000):
            text = random_text(draw, 2)
            tree = parse_expression("0*x*y*z + " + text)  # so that x, y, z are variables 0, 1, 2
            try:
                expected, actual = value_of_text(text), value_of_tree(tree)
            except (Undecided, ZeroDivisionError):
                continue
            compared += 1
            assert mpmath.almosteq(expected.number, actual.number, rel_eps=1e-30, abs_eps=1e-30), text
    assert compared > 400


def test_variables_are_numbered_by_appearance_or_keep_their_published_index() -> None:
    tree = parse_equation("b + a = theta*b + v4 + x_1")
    assert [leaf.label for leaf in tree.leaves()] == [f"Symbol:var_{index}" for index in (0, 1, 2, 0, 3, 4)]
    tree = parse_equation("y + w + v4 = v9 + v2 + var_3 + v12", variables="indexed")
    assert [leaf.label for leaf in tree.leaves()] == [f"Symbol:var_{index}" for index in (1, 3, 4, 9, 2, 3, 12)]
    assert parse_equation_sides("b + a", "a + c") == parse_equation("b + a = a + c")
    assert parse_equation_sides("y", "x", variables="indexed") == parse_equation("y = x", variables="indexed")
    with pytest.raises(ParseError, match=r"column 5: unknown variable 'a'; expected x, y, z, w, v4, v5"):
        parse_expression("x + a", variables="indexed")


def test_own_functions_can_be_declared() -> None:
    tree = parse_expression("max3(x, f(y), 2)", functions={"f": 1, "max3": 3})
    assert written(tree) == "max3(x, f(y), 2)"


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({"sin": 2}, "'sin' has a meaning already"),
        ({"e": 1}, "'e' has a meaning already"),
        ({"Add": 2}, "'Add' has a meaning already"),
        ({"f(": 1}, "'f('"),
        ({"f": 0}, "arity of 'f' must be a positive integer, not 0"),
    ],
)
def test_a_wrong_own_function_is_a_vocabulary_error(functions: dict[str, int], said: str) -> None:
    with pytest.raises(VocabularyError) as caught:
        parse_expression("x", functions=functions)
    assert said in str(caught.value)


def test_the_variable_too_many_has_a_place_that_a_reader_of_lines_can_replace() -> None:
    text = "a+b+c+d+f+g+h+i+j+k+l = 1"
    with pytest.raises(VocabularyError, match=r"line 1, column 21: 'l' is variable number 11") as caught:
        parse_equation(text)
    located = caught.value.at(7, "equations.txt")
    assert (located.line, located.column, located.source) == (7, 21, "equations.txt")
    assert str(located).startswith("equations.txt, line 7, column 21: 'l' is variable number 11")
    assert str(located).count("line ") == 1
    assert str(pickle.loads(pickle.dumps(located))) == str(located)
    assert str(VocabularyError("unknown leaf 'z'").at(3)) == "line 3: unknown leaf 'z'"
    assert str(VocabularyError("unknown leaf 'z'")) == "unknown leaf 'z'"


def test_published_equations_parse_to_their_preorder(shared_data: Path) -> None:
    count = 0
    for name in ("published_sample", "published_dev"):
        for line in (shared_data / f"equations/{name}.jsonl").read_text().splitlines():
            record = json.loads(line)
            tree = parse_preorder(record["preorder"])
            sides = [parse_expression(record[side], variables="indexed") for side in ("lhs", "rhs")]
            assert Tree("Equality", sides) == tree
            assert parse_equation_sides(record["lhs"], record["rhs"], variables="indexed") == tree
            assert tree.height == record["depth"]
            count += 1
    assert count == 2658


def test_nothing_is_computed() -> None:
    assert written(parse_expression("9**9**9**9")) == "Pow(9, Pow(9, Pow(9, 9)))"
    assert parse_brackets("(Mul Integer:0 (Pow Integer:0 NegativeOne:-1))") == parse_expression("0/0")
