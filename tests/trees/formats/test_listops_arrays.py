from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees.listops_strategies import bracketed_text, nary_expressions, plain_text

from treemem.errors import GraphError, ParseError
from treemem.trees import Forest, Tree, parse_listops
from treemem.trees.formats.listops import ListOpsForm
from treemem.trees.formats.listops_arrays import expressions_of_forest, expressions_of_lines

FORMS: tuple[ListOpsForm, ...] = ("binary", "nary")


@given(st.lists(st.tuples(nary_expressions(), st.sampled_from([plain_text, bracketed_text])), max_size=6))
def test_lines_are_read_as_one_by_one(spelled: list[tuple[Tree, Callable[[Tree], str]]]) -> None:
    trees, texts = [tree for tree, _ in spelled], [spell(tree) for tree, spell in spelled]
    expressions = expressions_of_lines(texts)
    for form in FORMS:
        forest = expressions.forest(form)
        assert forest == Forest.from_trees(parse_listops(text, form) for text in texts)
        again = expressions_of_forest(forest)
        assert np.array_equal(again.token, expressions.token)
        assert np.array_equal(again.begin, expressions.begin)
    assert expressions.length().tolist() == [len(plain_text(tree).split()) for tree in trees]
    assert expressions.depth().tolist() == [tree.height for tree in trees]
    assert (len(set(expressions.spellings())) == len(trees)) == (len(set(trees)) == len(trees))


WORDS = ("(", "(", ")", ")", "[MAX", "[SM", "]", "]", "1", "2", "12")


@st.composite
def nearly_right(draw: st.DrawFn) -> str:
    """An expression in which up to two words were left out, put in or changed."""
    words = draw(st.sampled_from([plain_text, bracketed_text]))(draw(nary_expressions(6))).split()
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(words)))
        words[place : place + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from(WORDS), max_size=1))
    return " ".join(words)


def fault(text: str) -> ParseError | None:
    try:
        parse_listops(text)
    except ParseError as error:
        return error
    return None


@given(st.lists(nearly_right(), max_size=4))
def test_the_first_wrong_line_is_refused_for_its_own_reason(texts: list[str]) -> None:
    faults = [fault(text) for text in texts]
    wrong = [line for line, error in enumerate(faults) if error is not None]
    if not wrong:
        assert len(expressions_of_lines(texts)) == len(texts)
        return
    with pytest.raises(ParseError) as caught:
        expressions_of_lines(texts, source="train.tsv", first_line=1)
    first = faults[wrong[0]]
    assert first is not None
    assert (caught.value.source, caught.value.line) == ("train.tsv", wrong[0] + 1)
    assert (caught.value.problem, caught.value.column) == (first.problem, first.column)


def test_a_wrong_line_beyond_the_first_thousands_is_named_by_its_own_number() -> None:
    with pytest.raises(ParseError, match="line 20001, column 6: '77' is no digit"):
        expressions_of_lines(["[MAX 1 2 ]"] * 20_000 + ["[MAX 77 ]"])


@pytest.mark.parametrize(
    ("trees", "problem"),
    [
        ([Tree("1"), Tree("X", [Tree("[MAX"), Tree("1")])], "tree 2: .* is not closed"),
        ([Tree("[MAX", [Tree("]")])], "tree 1"),
        ([Tree("[MAX", [Tree("(")])], "tree 1"),
        ([Tree("X", [Tree("[MAX"), Tree("X", [Tree("1"), Tree("]")])])], "tree 1: .* branch to the left"),
        ([parse_listops("[MAX 1 ]"), parse_listops("[MAX 1 ]", "nary")], "some of these trees are binary"),
    ],
)
def test_other_trees_have_no_tokens(trees: list[Tree], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        expressions_of_forest(Forest.from_trees(trees))
