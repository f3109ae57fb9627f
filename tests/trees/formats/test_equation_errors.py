"""What the equation parser says to text that is no equation, and how it bears text of any size."""

from __future__ import annotations

import pytest

from treemem.errors import ParseError, TreememError
from treemem.trees.formats.equations import tokens
from treemem.trees.formats.equations.literals import MOST_DIGITS
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.tree import Tree

OPERAND = "a number, a name, '(' or '-'"
END = "an operator or the end of the text"


@pytest.mark.parametrize(
    ("text", "line", "column", "problem", "expected"),
    [
        ("sin(x", 1, 6, "end of the text; the '(' at column 4 is not closed", "an operator or ')'"),
        ("x = ", 1, 5, "unexpected end of the text", OPERAND),
        ("2 +* 3 = 1", 1, 4, "unexpected '*'", OPERAND),
        ("x = y = z", 1, 7, "a second '='", END),
        ("x === y", 1, 5, "a second '='", OPERAND),
        ("", 1, 1, "the text is empty", "an equation"),
        ("x", 1, 2, "unexpected end of the text", "an operator or '='"),
        ("__import__('os').system('id') = 1", 1, 1, "unknown function '__import__'", "a known function"),
        ("x = 1 #", 1, 7, "no character '#'", END),
        ("x\n+ y\n= 3 @", 3, 5, "no character '@'", END),
        ("2x = 1", 1, 2, "name 'x' right after a value; a product is written with '*'", "an operator or '='"),
        ("x y = 1", 1, 3, "name 'y' right after a value", "an operator or '='"),
        ("x = 2(y)", 1, 6, "'(' right after a value", END),
        ("0x10 = x", 1, 2, "name 'x10' right after a value", "an operator or '='"),
        ("x(y) = 1", 1, 1, "unknown function 'x'", "'*' where a product is meant"),
        ("pi(y) = 1", 1, 1, "the constant 'pi' is no function", "'*' where a product is meant"),
        ("x = sni(y)", 1, 5, "unknown function 'sni'; did you mean sin", "a known function"),
        ("x = ln(y)", 1, 5, "unknown function 'ln'; did you mean log?", "a known function"),
        ("x = sin y", 1, 9, "the function 'sin' without its argument", "'('"),
        ("x = sin^2(y)", 1, 8, "the function 'sin' without its argument", "'('"),
        ("x = sin()", 1, 9, "unexpected ')'", OPERAND),
        ("x = sin(y, z)", 1, 10, "unexpected ','; 'sin' takes 1 argument", "an operator or ')'"),
        ("x = log(y, z, w)", 1, 13, "unexpected ','; 'log' takes 2 arguments", "an operator or ')'"),
        ("x = log(y", 1, 10, "is not closed", "an operator, ',' or ')'"),
        ("x) = 1", 1, 2, "')' without a '(' before it", "an operator or '='"),
        ("(x = 1)", 1, 4, "unexpected '='; the '(' at column 1 is not closed", "an operator or ')'"),
        ("(\n(x)\n = 1", 3, 2, "the '(' at line 1 of the text, column 1 is not closed", "an operator or ')'"),
        ("x != 1", 1, 3, "no character '!'", "an operator or '='"),
        ("x − y = 1", 1, 3, "no character '−' (U+2212)", "'-'"),
        ("2 × y = 1", 1, 3, "no character '×' (U+00D7)", "'*'"),
        ("x² = 1", 1, 2, "no character '²' (U+00B2)", "'^2'"),
        ("x = π", 1, 5, "no character 'π' (U+03C0)", "'pi'"),
        ("x = ｙ", 1, 5, "no character 'ｙ' (U+FF59)", "'y'"),
        ("x = ٣", 1, 5, "no character '٣' (U+0663)", "'3'"),
        ("x = \x00", 1, 5, "no character U+0000", OPERAND),
        ("\ufeffx = 1", 1, 1, "no character U+FEFF", OPERAND),
        ("x = 1e99999", 1, 5, "a power of ten of 5 digits", "at most 9999"),
    ],
)
def test_text_that_is_no_equation_is_answered_with_its_place(
    text: str, line: int, column: int, problem: str, expected: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse_equation(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert problem in error.problem
    assert expected in error.expected
    assert f"line {line}, column {column}: " in str(error)
    str(error).encode("utf-8")


@pytest.mark.parametrize(
    ("source", "column", "byte"),
    [(b"x = \xff1", 5, "0xff"), ("\u00e9 = ".encode() + b"\xc3", 5, "0xc3"), (b"\x80", 1, "0x80")],
)
def test_bytes_that_are_not_utf_8_are_a_parse_error(source: bytes, column: int, byte: str) -> None:
    with pytest.raises(ParseError, match=f"byte {byte} is not UTF-8; expected UTF-8 text") as caught:
        parse_equation(source)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_an_expression_has_no_equals_sign() -> None:
    with pytest.raises(ParseError, match="column 3: unexpected '='"):
        parse_expression("x = 1")
    with pytest.raises(ParseError, match="expected an expression"):
        parse_expression("")


@pytest.mark.parametrize("literal", ["1e400", "9" * 400, "1e-400"])
def test_a_number_leaf_out_of_range_is_a_parse_error(literal: str) -> None:
    with pytest.raises(ParseError, match="out of the range of a number leaf"):
        parse_equation(f"x = {literal}", numeric=True)


def test_a_number_may_have_a_thousand_digits() -> None:
    assert parse_expression("9" * MOST_DIGITS).size < 4 * MOST_DIGITS
    for digits in ("9" * (MOST_DIGITS + 1), "0." + "1" * MOST_DIGITS, "1" * 1_000_000):
        for numeric in (False, True):
            with pytest.raises(ParseError, match=r"a number of \d+ digits; expected at most 1000 digits"):
                parse_expression(f"x + {digits}", numeric=numeric)


def test_twenty_thousand_parentheses_are_parsed() -> None:
    count = 20_000
    assert parse_equation("(" * count + "x" + ")" * count + " = 1") == parse_equation("x = 1")
    with pytest.raises(ParseError) as caught:
        parse_equation("(" * count + "x = 1")
    assert (caught.value.line, caught.value.column) == (1, count + 3)


def test_the_longest_text_is_parsed_and_its_mistakes_are_told_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 100_000
    assert longest < tokens.LONGEST_TEXT
    monkeypatch.setattr(tokens, "LONGEST_TEXT", longest)
    name = "x" * (longest - 4)
    assert parse_equation(f"{name} = 1") == Tree("Equality", [Tree("Symbol:var_0"), Tree("Integer:1")])
    for text in (f"{name[:-2]}(1)=", f"1 {name[:-2]}", f"{name[:-2]}#", "#" * longest, "x" * (longest + 1)):
        with pytest.raises(TreememError) as caught:
            parse_equation(text)
        assert len(str(caught.value)) < 400
