"""The forms of texts in a column of trees."""

from __future__ import annotations

import pytest

from treemem.errors import ParseError, RecipeError
from treemem.trees import Forest, Tree
from treemem.trees.formats.forms import FORMS, TEXT_FORMS, TextForm
from treemem.trees.formats.text_forms import TextReader, parse_text

_IN_BRACKETS = ("brackets", "labelled", "unlabelled", "smtlib", "lisp")


def read(texts: list[str], form: TextForm = "brackets", number: str | None = None) -> list[str]:
    reader = TextReader(form, number, values=False)
    forest = Forest.from_trees([reader.parse(text) for text in texts])
    reader.check_column(forest)
    return [str(tree) for tree in forest]


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("brackets", "(f 2 x)", "(f N=2.0 x)"),
        ("labelled", "( f ( 2.5 ) )", "(f N=2.5)"),
        ("unlabelled", "( + ( -4 6 ) )", "(X + (X N=-4.0 N=6.0))"),
        ("json", '["f", 2, "3"]', "(f N=2.0 3)"),
        ("expression", "2*x + 0.7 + 3.25", "(Add (Mul N=2.0 Symbol:var_0) (Add N=0.7 N=3.25))"),
        ("equation", "x + -4 = 1/2", "(Equality (Add Symbol:var_0 N=-4.0) N=0.5)"),
        ("preorder", "Add Integer:2 Rational:2/5", "(Add N=2.0 N=0.4)"),
        ("listops", "[MAX 2 9 ]", "(X (X (X [MAX N=2.0) N=9.0) ])"),
    ],
)
def test_numbers_are_values_in_every_form(form: TextForm, text: str, expected: str) -> None:
    assert str(parse_text(text, form, number="N")) == expected
    assert "N=" not in str(parse_text(text, form))


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_number_label_without_effect_is_refused(form: TextForm) -> None:
    texts: dict[str, str] = {"json": '["f", "x"]', "expression": "sin(x)", "equation": "x = y", "logic": "( not a )"}
    texts |= {"preorder": "sin Symbol:var_0", "listops": "( ( [MAX ] ) )", "ast_json": '{"type": "f"}'}
    texts |= {
        "python": "f(x)",
        "prefix": "sin x",
        "newick": "(A,B);",
        "xml": "<f>x</f>",
        "mathml": "<math><ci>x</ci></math>",
    }
    if form == "listops":
        pytest.skip("every text of ListOps has a digit")
    text = texts.get(form, "(f x y)" if form in _IN_BRACKETS else FORMS[form].example)
    with pytest.raises(RecipeError, match="number='N' has no effect: no leaf is a number"):
        read([text], form, number="N")


@pytest.mark.parametrize(
    ("form", "text", "seen"),
    [
        ("json", "(f x y)", "brackets"),
        ("expression", '["f", "x"]', "JSON"),
        ("logic", "x+y", "an expression in infix"),
        ("preorder", "(f x y)", "brackets"),
        ("listops", "<a>b</a>", "XML"),
        ("newick", "<math><apply><sin/><ci>x</ci></apply></math>", "XML or content MathML"),
        ("xml", "(A:0.1,B);", "Newick"),
        ("json", '[{"type": "Module", "children": [1]}, {"type": "Pass"}]', "a syntax tree in JSON"),
        ("json", '{"type": "Program", "body": []}', "JSON of ESTree"),
        ("estree", '{"type": "sum", "children": [{"type": "id", "text": "x"}]}', "JSON of tree-sitter"),
        ("tree_sitter_json", '{"type": "Literal", "value": 3, "raw": "3"}', "JSON of ESTree"),
        ("estree", '{"type": "Module", "children": []}', "a syntax tree in JSON, as in py150 and js150 or JSON;"),
        ("ast_json", '{"type": "sum", "children": [{"type": "id", "text": "x"}]}', "JSON of tree-sitter"),
        ("smtlib", '(call function: (id) "(" ")")', "s-expressions of tree-sitter"),
        ("lisp", "(call function: (id))", "s-expressions of tree-sitter"),
        ("tree_sitter", "(let ((a b)) c)", "SMT-LIB or Lisp"),
        ("xml", "(define (f x) x)", "Lisp"),
        ("penn", "(assert (= x 1))", "SMT-LIB"),
        ("equation", "y = f(x) + 1", "Python code"),
        ("json", "def f(x):\n    return x", "Python code"),
        ("conllu", "mul INT+ 2 x", "prefix notation"),
        ("prefix", "the cats\n2 0", "words and parent pointers"),
        ("preorder", FORMS["conllu"].example, "CoNLL-U"),
        ("conllu:lemma", "(f x y)", "brackets;"),
        ("mathml", "( ( a b ) c )", "brackets without labels"),
    ],
)
def test_a_text_in_another_form_is_told(form: TextForm, text: str, seen: str) -> None:
    with pytest.raises(ParseError, match=f"this looks like {seen}"):
        parse_text(text, form)


@pytest.mark.parametrize(
    ("texts", "sign"),
    [
        (["( - ( -4 6 ) )", "( + ( -10 9 ) )"], "a space after its"),
        (["(- (-4 6))", "(+ (-10 9))"], "begin with a number"),
        (["(a (b c))", "(b (c a))"], "stands in both places"),
        (["( the ( cat ( sat down now ) ) )", "( cat ( sat the down ) )", "( now cat )"], "every bracket|every place"),
        (["(x + (y * z))", "(x - y)"], "an operator in the middle"),
        (["(a AND (NOT b))", "(a OR (b AND c))"], "an operator in the middle"),
        (["(a -> b)", "(a <-> (b -> c))"], "an operator in the middle"),
        (["(+ (7 9 2))", "(- (3 (* (2 5))))"], "begin with a number such as '7'"),
    ],
)
def test_a_column_of_brackets_without_labels_is_refused(texts: list[str], sign: str) -> None:
    with pytest.raises(RecipeError, match=f'these brackets look unlabelled: .*{sign}.*text="unlabelled"'):
        read(texts)
    assert len(read(texts, "labelled")) == len(texts)


@pytest.mark.parametrize(
    "texts",
    [
        ["(f (g x))", "(g (f x))", "x"],
        ["(3 (2 It) (4 (2 works) (2 .)))"],
        ["(3 good)", "(0 bad)"],
        ["( S ( NP a b ) ( VP c ) )"],
        ["(eats (cat the) fish)"],
        ["(not (not a))"],
        ["(AND a (NOT b))", "(OR a b)"],
        ["(S (0 a) (1 b))", "(S (0 b c) x)"],
        ["(S Yes, sir)", "(S (NP a) b)", "(S Well, (VP go) ,)", "(S a, b c)"],
        ["x", "y"],
        ["(f x)", "well-known", "N/A"],
    ],
)
def test_columns_with_labels_are_read(texts: list[str]) -> None:
    assert len(read(texts)) == len(texts)


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["(call function: (id) arguments: (list (id)))", "(call function: (id))"], "tree_sitter"),
        (["(f |a b| c)", "(g |c d|)"], "smtlib"),
    ],
)
def test_a_column_of_brackets_with_signs_of_another_form_is_refused(texts: list[str], form: str) -> None:
    with pytest.raises(RecipeError, match=f'these brackets have items such as .* as text="{form}"'):
        read(texts)
    assert len(read(texts, "labelled")) == 2
    assert len(read(["(S he said : (S go))", "(S note: a)", "(NP Re: (NP it))", "(S | a)"])) == 4


@pytest.mark.parametrize("texts", [["x-y", "x/y"], ["a,b", "c"], ["{f}", "{g}"]])
def test_a_column_of_single_labels_that_look_like_another_form_is_refused(texts: list[str]) -> None:
    with pytest.raises(RecipeError, match="every tree is a single label"):
        read(texts)
    assert read(texts, "labelled") == [str(Tree(text)) for text in texts]
