from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import ParseError
from treemem.trees.forest import Forest
from treemem.trees.formats.bracketed_lines import forest_of_bracketed
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree

WORDS = ("a", "b", "X", "[MAX", "\u00e9", "\ud800", "a\u00a0b", "x=")


def binary_trees() -> st.SearchStrategy[Tree]:
    return st.recursive(
        st.sampled_from(WORDS).map(Tree), lambda parts: st.tuples(parts, parts).map(lambda pair: Tree("X", pair))
    )


def spelled(tree: Tree) -> str:
    if tree.is_leaf:
        return tree.label
    return f"( {spelled(tree.children[0])} {spelled(tree.children[1])} )"


@given(st.lists(binary_trees(), max_size=6), st.booleans())
def test_reads_what_parse_brackets_reads(trees: list[Tree], dense: bool) -> None:
    texts = [spelled(tree) for tree in trees]
    if dense:
        texts = [text.replace("( ", "(").replace(" )", ")\t") for text in texts]
    forest = forest_of_bracketed(texts)
    assert forest == Forest.from_trees(trees)
    assert forest == Forest.from_trees(parse_brackets(text, first="child") for text in texts)


def is_binary(text: str) -> bool:
    try:
        tree = parse_brackets(text, first="child")
    except ParseError:
        return False
    return all(node.arity in (0, 2) for node in tree.preorder()) and '"' not in text and "=" not in text


@given(st.lists(st.lists(st.sampled_from(["(", "(", ")", ")", "a", "b", '"a"', "a=1"]), max_size=9), max_size=4))
def test_refuses_exactly_the_texts_that_are_no_binary_trees_and_names_the_first(words: list[list[str]]) -> None:
    texts = [" ".join(line) for line in words]
    wrong = [line for line, text in enumerate(texts, start=3) if not is_binary(text)]
    if not wrong:
        assert forest_of_bracketed(texts) == Forest.from_trees(parse_brackets(text, first="child") for text in texts)
        return
    with pytest.raises(ParseError) as caught:
        forest_of_bracketed(texts, source="pairs.txt", first_line=3)
    assert caught.value.line == wrong[0]
    assert caught.value.source == "pairs.txt"


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "the text holds no tree"),
        ("( a b", 6, "the bracket of column 1 is not closed"),
        ("( a ( a b c ) )", 5, "a bracket around 3 trees"),
        ("( a ( b ) c )", 5, "a bracket around 1 tree"),
        ("( a x=2 )", 5, "the leaf 'x=2' is no bare word"),
        ('( a "b" )', 5, "is no bare word"),
        ("a b ) (", 3, "'b' after the end"),
    ],
)
def test_says_where_and_what_is_wrong(text: str, column: int, problem: str) -> None:
    with pytest.raises(ParseError, match=r"^f, line 7[,:] ") as caught:
        forest_of_bracketed(["( a b )", text, "("], source="f", lines=[2, 7, 9])
    assert caught.value.column == column
    assert problem in caught.value.problem


def test_quotes_and_backslashes_are_read_as_the_parser_reads_them() -> None:
    texts = ['\ufeff( says ( " ( hi " ) ) )', '( a\\ 5" )', '( the ( " x ) )']
    assert forest_of_bracketed(texts) == Forest.from_trees(parse_brackets(text, first="child") for text in texts)
    for text in ('( " the" a )', r"( a \( )", "( a,( b c ) )", '["f"]'):
        with pytest.raises(ParseError, match="line 2"):
            forest_of_bracketed(["( a b )", text])


def test_a_wrong_text_beyond_the_first_thousands_is_named_by_its_own_line() -> None:
    with pytest.raises(ParseError) as caught:
        forest_of_bracketed(["( a b )"] * 20_000 + ["( a"], first_line=2)
    assert caught.value.line == 20_002


def test_other_parsers_can_explain() -> None:
    def parse(text: str) -> None:
        raise ParseError("no sentence", text, 1, "a sentence")

    with pytest.raises(ParseError, match="line 1, column 2: no sentence"):
        forest_of_bracketed(["( a"], parse=parse)
