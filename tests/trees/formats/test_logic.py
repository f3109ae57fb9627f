from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import GraphError, ParseError
from treemem.trees.formats.logic import VARIABLES, format_logic, parse_logic
from treemem.trees.tree import Tree


def formulas() -> st.SearchStrategy[Tree]:
    """Formulas with their operators at inner nodes."""
    variables = st.sampled_from(VARIABLES).map(Tree)
    return st.recursive(
        variables,
        lambda part: st.one_of(
            part.map(lambda operand: Tree("not", [operand])),
            st.builds(lambda name, left, right: Tree(name, [left, right]), st.sampled_from(["and", "or"]), part, part),
        ),
        max_leaves=20,
    )


def written(formula: Tree) -> str:
    parts = [written(child) for child in formula.children]
    if not parts:
        return formula.label
    if formula.label == "not":
        return f"( not {parts[0]} )"
    return f"( {parts[0]} ( {formula.label} {parts[1]} ) )"


@given(formulas())
def test_what_is_written_reads_back_in_both_forms(formula: Tree) -> None:
    text = written(formula)
    assert parse_logic(text, form="operators") == formula
    assert str(parse_logic(text)).replace("(X ", "( ").replace(")", " )") == text
    assert format_logic(formula) == format_logic(parse_logic(text)) == text


def test_a_tree_that_is_no_formula_is_not_written() -> None:
    a, b = Tree("a"), Tree("b")
    for tree, said in (
        (Tree("xor", [a, b]), r"'\(xor a b\)' stands in no formula of the form 'operators'"),
        (Tree("g"), "'g' stands in no"),
        (Tree("X", [a, b]), r"'\(X a b\)' stands in no formula of the form 'binary'"),
        (Tree("not", [Tree("and")]), "'and' stands in no"),
        (Tree("not", [Tree("X", [Tree("not", value=1), a])]), r"'\(X not=1\.0 a\)' stands in no"),
        (Tree("a", value=2), r"'a=2\.0' stands in no"),
        (Tree("( not a )"), "stands in no"),
        (Tree("X", [Tree("not"), Tree("not", [a])]), r"'\(not a\)' stands in no formula of the form 'binary'"),
        (Tree("and", [Tree("X", [Tree("not"), a]), b]), r"'\(X not a\)' stands in no formula of the form 'operators'"),
    ):
        with pytest.raises(GraphError, match=said):
            format_logic(tree)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("( a ( and b )", "not closed"),
        ("( a ( and b ) ) )", "after the end"),
        ("( a ( xor b ) )", "column 7: unknown operator 'xor'; did you mean or"),
        ("( ( nto a ) ( and b ) )", "column 5: unknown operator 'nto'; did you mean not"),
        ("( a ( b c ) )", "column 1: .* is no formula"),
        ("( ( not a ) ( and ( b c ) ) )", "column 19: '\\(b c\\)' is no formula"),
        ("( ( not a ) ( and o ) )", "column 19: 'o' is no variable"),
        ('( "(" ( and b ) )', "column 3: '\"\\(\"' is no variable"),
        ("( a ( and b=2 ) )", "column 11: 'b=2.0' is no variable; expected"),
        ("( and a b )", "is no formula"),
        ("( a b )", "is no formula"),
        ("( not )", "is no formula"),
        ("( not not )", "'not' is no variable"),
        ("( not g )", "'g' is no variable"),
        ("( a )", "is no formula"),
        ("", "no tree"),
    ],
)
def test_what_is_no_formula_is_refused(text: str, said: str) -> None:
    for form in ("binary", "operators"):
        with pytest.raises(ParseError, match=said):
            parse_logic(text, form=form)  # type: ignore[arg-type]
