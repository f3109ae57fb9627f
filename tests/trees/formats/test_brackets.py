from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees.random_equations import PROPERTY

from treemem.errors import ParseError
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import format_brackets, parse_brackets
from treemem.trees.tree import Tree

_AWKWARD = [
    "",
    " ",
    "(",
    ")",
    '"',
    "\\",
    "a=2",
    "=",
    "=2",
    "a=",
    "a=2.5e-3",
    "a b=1",
    "a=-.5",
    '"a"',
    "\n",
    "é",
    "\x00",
]
_AWKWARD += ["a+b", "[]", '["f"]', "(x)", "<a>b</a>", "f,"]  # which look like other forms
_LABELS = st.sampled_from(_AWKWARD) | st.text(max_size=5) | st.text(alphabet='ab="(\\ )1.', max_size=6)
_VALUES = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_LEAVES = st.builds(lambda label, value: Tree(label, value=value), _LABELS, _VALUES)
_TREES = st.recursive(
    _LEAVES, lambda children: st.builds(Tree, _LABELS, st.lists(children, min_size=1, max_size=4)), max_leaves=10
)


@given(tree=_TREES)
@PROPERTY
def test_any_tree_reads_back_from_its_brackets(tree: Tree) -> None:
    assert parse_brackets(format_brackets(tree)) == tree
    assert parse_brackets(format_brackets(tree).encode()) == tree
    assert str(tree) == format_brackets(tree)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("leaf", Tree("leaf")),
        ("(leaf)", Tree("leaf")),
        ("leaf=2.5", Tree("leaf", value=2.5)),
        ("(leaf=-1e3)", Tree("leaf", value=-1000)),
        (" (3\t(2 It)\n(4 fine) ) ", Tree("3", [Tree("2", [Tree("It")]), Tree("4", [Tree("fine")])])),
        ('("a b"=1)', Tree("a b", value=1)),
        ('("a=1" b)', Tree("a=1", [Tree("b")])),
        ('"a \\"\\u0062\\n"', Tree('a "b\n')),
        ("(= =)", Tree("=", [Tree("=")])),
        ("(a(b)c)", Tree("a", [Tree("b"), Tree("c")])),
        ("x=nan", Tree("x=nan")),
        ('(f 5")', Tree("f", [Tree('5"')])),
        ('(f " a)', Tree("f", ['"', "a"])),
        ('(says " (X hi there) ")', Tree("says", ['"', Tree("X", ["hi", "there"]), '"'])),
        ('(says " (X hi there)")', Tree("says", ['"', Tree("X", ["hi", "there"]), '"'])),
        ("(NP (`` \") (JJ old) ('' \"))", Tree("NP", [Tree("``", ['"']), Tree("JJ", ["old"]), Tree("''", ['"'])])),
        ('(" ")', Tree('"', ['"'])),
        ('(S (" ") (X (a b)) (" "))', Tree("S", [Tree('"', ['"']), Tree("X", [Tree("a", ["b"])]), Tree('"', ['"'])])),
        (
            '(f "a b" " the" "yes " "(" ":)" "(see above)" "")',
            Tree("f", ["a b", " the", "yes ", "(", ":)", "(see above)", ""]),
        ),
        (r"(NP \( a \))", Tree("NP", ["(", "a", ")"])),
        (r"(f a\b c\)", Tree("f", ["a\\b", "c\\"])),
        (r"(row \\)", Tree("row", ["\\\\"])),
        ("(S (NP=2 (NN a) (NN b)) c)", Tree("S", [Tree("NP=2", [Tree("NN", ["a"]), Tree("NN", ["b"])]), "c"])),
        ("\ufeff(f x)", Tree("f", ["x"])),
    ],
)
def test_brackets_are_read_as_written(text: str, tree: Tree) -> None:
    assert parse_brackets(text) == tree


@pytest.mark.parametrize(
    ("text", "first", "line", "column", "said"),
    [
        ("", "label", 1, 1, "the text holds no tree"),
        (" \n", "label", 2, 1, "the text holds no tree"),
        ("(", "label", 1, 2, "the text ends within a node"),
        ("()", "label", 1, 2, "')' closes no node"),
        (")", "label", 1, 1, "')' closes no node"),
        ("(a b", "label", 1, 5, "the node 'a' is not closed"),
        ("(a\n(b c)", "label", 2, 6, "the node 'a' is not closed"),
        ("((a) b)", "label", 1, 2, "a node without a label"),
        ("(a b))", "label", 1, 6, "')' after the end of the tree"),
        ("(a) (b)", "label", 1, 5, "'(' after the end of the tree"),
        ("a b", "label", 1, 3, "'b' after the end of the tree"),
        ('5" 6', "label", 1, 4, "after the end of the tree"),
        ('(a "b)', "label", 1, 4, "a quoted label is not closed"),
        ('(a "b"c)', "label", 1, 7, "'c' after a quoted label"),
        ('(a "b"=c)', "label", 1, 7, "'=c' after a quoted label"),
        ('(a "b\\q")', "label", 1, 6, "a wrong escape in a quoted label"),
        ('("a"=1 b)', "label", 1, 2, "'a' has children and a value"),
        ('(a "b (c" d)', "label", 1, 4, "a quoted label whose brackets do not match"),
        ("a=1e999", "label", 1, 1, "must be finite"),
        ("( a ( ) )", "child", 1, 7, "a bracket without a child"),
        ("( a ( b )", "child", 1, 10, "the bracket of column 1 is not closed"),
        ("( a ) )", "child", 1, 7, "')' after the end of the tree"),
        ("( a b ) c", "child", 1, 9, "'c' after the end of the tree"),
        (")", "child", 1, 1, "')' closes no node"),
        ("", "child", 1, 1, "the text holds no tree"),
    ],
)
def test_a_mistake_is_answered_with_its_place(text: str, first: Any, line: int, column: int, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_brackets(text, first=first)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in str(caught.value)


def test_the_first_item_may_be_a_child_like_the_others() -> None:
    tree = parse_brackets("( ( not a ) ( and b c ) )", first="child")
    assert tree == parse_brackets("(X (X not a) (X and b c))")
    assert Forest.from_trees([tree]).tokens("bracketed leaves").strings() == [
        ["(", "(", "not", "a", ")", "(", "and", "b", "c", ")", ")"]
    ]
    assert parse_brackets("a", first="child") == Tree("a")
    assert parse_brackets("(a)", first="child") == Tree("X", [Tree("a")])


def test_a_chain_of_20_000_nodes_and_a_node_of_50_000_children_read_back() -> None:
    chain = Tree("leaf")
    for _ in range(20_000):
        chain = Tree("f", [chain])
    wide = Tree("f", [Tree("leaf", value=number) for number in range(50_000)])
    for tree in (chain, wide):
        assert parse_brackets(format_brackets(tree)) == tree


def test_numbers_are_values_if_asked() -> None:
    tree = parse_brackets('(f 2 3.5 -1e3 (g .5) "7" x age=30 N=4 1,000)', number="N", values=False)
    leaves = [(leaf.label, leaf.value) for leaf in tree.leaves()]
    numbers = [("N", 2.0), ("N", 3.5), ("N", -1000.0), ("N", 0.5)]
    assert leaves == [*numbers, ("7", None), ("x", None), ("age=30", None), ("N", 4.0), ("1,000", None)]
    assert parse_brackets("(3 (2 It) fine)", number="N").label == "3"
    assert parse_brackets("( 1 ( + 2 ) )", first="child", number="N") == Tree(
        "X", [Tree("N", value=1), Tree("X", ["+", Tree("N", value=2)])]
    )


def test_a_value_that_nothing_reads_is_refused() -> None:
    assert parse_brackets("(split age=30 yes)", values=False) == Tree("split", ["age=30", "yes"])
    with pytest.raises(ParseError, match="'age' has a value, and no leaf has a value here; number names"):
        parse_brackets('(split "age"=30 yes)', values=False)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('["f","x"]', 'JSON; .*text="json"'),
        ('{"label": "f", "children": ["x"]}', 'JSON; .*text="json"'),
        ("['f','x']", "a Python literal"),
        ("x+y", 'an expression in infix; .*text="expression"'),
        ("sin(x)", 'an expression in infix; .*text="expression"'),
        ("x = y", 'an equation in infix; .*text="equation"'),
        ("<math><mi>x</mi></math>", "XML"),
        ("(A,B);", "Newick"),
        ("(A:0.1,B:0.2)", "a list with commas"),
        ("{a{b}{c}}", "a tree in {}"),
        (r"\frac{x}{y}", "LaTeX"),
        ("[MAX 2 3 ]", 'ListOps; .*text="listops"'),
        ("Equality sin Symbol:var_0 Integer:0", 'labels in preorder; .*text="preorder"'),
    ],
)
def test_a_text_in_another_form_is_refused_with_the_form_that_it_looks_like(text: str, form: str) -> None:
    with pytest.raises(ParseError, match=f"this looks like {form}"):
        parse_brackets(text)


@pytest.mark.parametrize(
    "label",
    ["-", "N/A", "3.5", "-1e+5", "C++", "well-known", "[UNK]", "<unk>", "</s>", r"\alpha", "key=value", "24/7", "[MAX"],
)
def test_a_label_is_a_tree_of_one_node(label: str) -> None:
    assert parse_brackets(label) == Tree(label)
    assert parse_brackets(f"(f {label} a+b)") == Tree("f", [label, "a+b"])


def test_the_outer_bracket_of_the_penn_treebank_is_told() -> None:
    with pytest.raises(ParseError, match="remove the first and the last bracket, or read their file with read_penn"):
        parse_brackets("( (S (NP (PRP I)) (VP (VBP go))) )")
    with pytest.raises(ParseError, match='text="unlabelled"'):
        parse_brackets("( ( a b ) c )")
    with pytest.raises(ParseError, match="a node without a label"):
        parse_brackets("( " * 20_000 + "a b" + " )" * 20_000)
