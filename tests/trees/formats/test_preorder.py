from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from trees.random_equations import PROPERTY, equations

from treemem.errors import GraphError, ParseError, VocabularyError
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.preorder import format_preorder, parse_preorder
from treemem.trees.tree import Tree


@given(tree=equations(numeric=True))
@PROPERTY
def test_preorder_text_reads_back_as_the_same_tree(tree: Tree) -> None:
    assert parse_preorder(format_preorder(tree)) == tree


def test_the_preorder_of_published_records_prints_as_it_was_read(shared_data: Path) -> None:
    for name in ("published_sample", "published_dev", "completion_candidates"):
        for line in (shared_data / f"equations/{name}.jsonl").read_text().splitlines():
            text = json.loads(line)["preorder"]
            assert format_preorder(parse_preorder(text, unify=False)) == text


def test_leaves_that_say_the_same_are_one_unless_kept() -> None:
    assert str(parse_preorder("Add One:1 Rational:0")) == "(Add Integer:1 Integer:0)"
    assert str(parse_preorder("Add One:1 Rational:0", unify=False)) == "(Add One:1 Rational:0)"


def test_leaves_outside_the_table_are_leaves_too() -> None:
    text = "Add Symbol:theta Add Integer:-17 Add Rational:3/7 Add Float:2.5e-3 Number:-2.5"
    tree = parse_preorder(text)
    assert [leaf.label for leaf in tree.leaves()][:4] == text.split()[1:8:2]
    assert list(tree.leaves())[4] == Tree("Number", value=-2.5)
    assert format_preorder(tree) == text


def test_own_functions_can_be_declared() -> None:
    tree = parse_preorder(b"f Pi:pi Pi:pi Pi:pi", functions={"f": 3})
    assert tree == Tree("f", [Tree("Pi:pi")] * 3)
    assert format_preorder(tree) == "f Pi:pi Pi:pi Pi:pi"
    with pytest.raises(VocabularyError, match="'sin' has a meaning already"):
        parse_preorder("Pi:pi", functions={"sin": 3})


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 1, "the text is empty"),
        ("Add Pi:pi", 10, "Add has 1 of its 2 arguments; expected another label"),
        ("Add Pi:pi sin  ", 14, "sin has 0 of its 1 arguments"),
        ("sin Pi:pi Pi:pi", 11, "'Pi:pi' after the end of the tree"),
        ("Add Pi:pi snh", 11, "unknown label 'snh'; did you mean"),
        ("sin Symbol", 5, "unknown label 'Symbol'"),
        ("sin Integer:x", 5, "unknown label 'Integer:x'"),
        ("sin NegativeOne:1", 5, "did you mean NegativeOne:-1"),
        ("sin Number:1e999", 5, "must be finite"),
        ("sin Number:nan", 5, "unknown label 'Number:nan'"),
    ],
)
def test_a_mistake_is_answered_with_its_place(text: str, column: int, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_preorder(text)
    assert caught.value.column == column
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("brackets", "error", "said"),
    [
        ("(Add Pi:pi)", GraphError, "Add takes 2 arguments, not 1"),
        ("(sin Number)", GraphError, "'Number' has the value None"),
        ("(sin Pi:pi=2)", GraphError, "'Pi:pi' has the value 2.0"),
        ("(sin Pi:pie)", GraphError, "'Pi:pie' cannot be a leaf in preorder text; did you mean Pi:pi"),
        ('("my f" Pi:pi)', VocabularyError, "'my f'"),
    ],
)
def test_a_tree_without_a_preorder_form_is_refused(brackets: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        format_preorder(parse_brackets(brackets))
    assert said in str(caught.value)
