from __future__ import annotations

import pytest
from hypothesis import given
from trees.listops_strategies import bracketed_text, nary_expressions, plain_text

from treemem.errors import GraphError, ParseError
from treemem.trees import Tree, format_listops, parse_brackets, parse_listops


@given(nary_expressions())
def test_both_spellings_of_an_expression_are_read_as_both_forms(tree: Tree) -> None:
    plain, bracketed = plain_text(tree), bracketed_text(tree)
    assert parse_listops(plain, "nary") == parse_listops(bracketed, "nary") == tree
    binary = parse_brackets(bracketed, first="child")
    assert parse_listops(plain) == parse_listops(bracketed) == binary
    for form in (tree, binary):
        assert format_listops(form) == plain
        assert format_listops(form, brackets=True) == bracketed


def test_spaces_may_be_left_out_around_brackets_and_ends() -> None:
    tree = parse_listops("(((  [MAX 2) 9)\t])")
    assert tree == parse_listops("[MAX 2 9]") == parse_listops(b"[MAX 2 9 ]\r\n")


@pytest.mark.parametrize(
    ("text", "column", "problem", "expected"),
    [
        ("", 1, "the text holds no expression", "an operator or a digit"),
        ("7 8", 3, "'8' after the end of the expression", "the end of the text"),
        ("[MAX 1 2 ] ]", 12, "']' after the end of the expression", "the end of the text"),
        ("]", 1, "']' closes no list", "an operator or a digit"),
        ("[MAX ]", 6, "the operator '[MAX' has no arguments", "a digit or a list"),
        ("[MAX 1 [MIN 2 ]", 16, "the list '[MAX' of column 1 is not closed", "an argument or ']'"),
        ("[MXA 1 2 ]", 1, "unknown operator '[MXA'; did you mean [MAX?", "a digit, ] or one of"),
        ("MED 1 2 ]", 1, "unknown operator 'MED'; did you mean [MED?", "a digit, ] or one of"),
        ("[XM 1 2 ]", 1, "unknown operator '[XM'", "a digit, ] or one of"),
        ("[MAX 12 3 ]", 6, "'12' is no digit", "a whole number from 0 to 9"),
        ("((", 3, "the text ends after '('", "an operator"),
        ("( 7 )", 1, "'(' before '7'", "'(' only before an operator"),
        ("( [MAX ( 1 ( 2 ] ) ) )", 8, "'(' before '1': lists branch to the left", "'(' only before an operator"),
        ("( ( ( [MAX 1 ) ] )", 1, "3 '(' before '[MAX', whose list has 1 argument", "2: one for each argument"),
        ("( [MAX 1 ) 2 ) ] )", 1, "1 '(' before '[MAX', whose list has 2 arguments", "3: one for each argument"),
        ("( ( [MAX 1 ) ]", 15, "the bracket around ']' is not closed", "')'"),
        ("( ( [MAX 1 ] ) )", 12, "']' where the bracket around '1' must be closed", "')'"),
        ("( ( ( [MAX ) 1 ) ] )", 12, "')' closes no bracket here", "an argument or ']'"),
        ("( ( [MAX 1 ) ] ) )", 18, "')' after the end of the expression", "the end of the text"),
        ("( ( ( [MAX ( ( [MIN 1 ) ] ) 3 ) ] )", 29, "'3' where the bracket around ']' must be closed", "')'"),
    ],
)
def test_says_where_an_expression_is_wrong_and_what_was_expected(
    text: str, column: int, problem: str, expected: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse_listops(text)
    assert caught.value.column == column
    assert problem in caught.value.problem
    assert caught.value.expected.startswith(expected)


def test_5000_lists_within_one_another_are_read_and_written() -> None:
    depth = 5_000
    text = "[MAX " * depth + "1" + " ]" * depth
    tree = parse_listops(text, "nary")
    assert tree.height == depth
    assert format_listops(tree) == text
    assert parse_listops(format_listops(tree, brackets=True)).size == 4 * depth + 1


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (Tree("X", [Tree("[MAX"), Tree("1")]), "is not closed"),
        (Tree("X", [Tree("[MAX"), Tree("X", [Tree("1"), Tree("]")])]), "lists branch to the left"),
        (Tree("[MAX", [Tree("x")]), "unknown operator 'x'"),
        (Tree("max", [Tree("1")]), "unknown operator 'max'"),
        (Tree("[MAX"), "is not closed"),
    ],
)
def test_other_trees_are_not_written(tree: Tree, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        format_listops(tree)
