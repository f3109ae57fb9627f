"""Each form of texts: what its texts mean, what it refuses, and that what it writes reads back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from documentation.page_blocks import DOCS
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_strategies import chain

from treemem.errors import GraphError, ParseError, RecipeError, TreememError
from treemem.trees import Tree, format_text, parse_brackets, parse_text
from treemem.trees.formats.forms import FORMS, TEXT_FORMS, TextForm, described_forms

READ_ONLY = {"penn", "estree", "tree_sitter_json", "python"}
DEEP: dict[TextForm, str] = {
    "penn": "(S (NN a) " * 20_000 + "(NN b)" + ")" * 20_000,
    "estree": '{"type": "Spread", "argument": ' * 20_000 + "null" + "}" * 20_000,
    "tree_sitter_json": '{"type": "f", "children": [' * 20_000 + '{"type": "x"}' + "]}" * 20_000,
    "prefix": "sin " * 20_000 + "x",
    "mathml": "<apply><sin/>" * 20_000 + "<ci>x</ci>" + "</apply>" * 20_000,
    "parents": "x " * 20_000 + "\n" + " ".join(map(str, range(20_000))),
}
_labels = st.text(max_size=6) | st.sampled_from(
    ["X", "()", "f()", "|", '"a"', "'", "3", "-1", "plus", "f g", "a:b", "@a"]
)
_trees = st.recursive(
    _labels.map(Tree), lambda part: st.builds(Tree, _labels, st.lists(part, max_size=3)), max_leaves=8
)


def conllu(*rows: str) -> str:
    """Lines with the columns ID, FORM, HEAD and DEPREL."""
    lines = []
    for row in rows:
        cells = row.split()
        lines.append("\t".join([*cells[:2], "_", "_", "_", "_", *cells[2:], "_", "_"]) if len(cells) == 4 else row)
    return "\n".join(lines)


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_the_example_of_a_form_reads_back_from_what_is_written(form: TextForm) -> None:
    tree = parse_text(FORMS[form].example, form)
    if form in READ_ONLY:
        with pytest.raises(RecipeError, match=f"the form '{form}' is only read"):
            format_text(tree, form)
        return
    assert parse_text(format_text(tree, form), form) == tree


@pytest.mark.parametrize("form", [form for form in TEXT_FORMS if form not in READ_ONLY])
@given(tree=_trees)
@settings(max_examples=60, deadline=None)
def test_what_a_form_writes_reads_back_as_the_same_tree_or_is_refused(form: TextForm, tree: Tree) -> None:
    try:
        text = format_text(tree, form)
    except TreememError:
        return
    assert parse_text(text, form) == tree


@pytest.mark.parametrize(
    "tree",
    ["apply", "(apply x)", "(apply (f x))", '(apply "f()" x)', "(bvar x)", "bvar", "sep", '(f "sep" sep)', "(math x)"],
)
def test_names_that_mean_something_in_mathml_are_written_as_names(tree: str) -> None:
    assert str(parse_text(format_text(parse_brackets(tree), "mathml"), "mathml")) == str(parse_brackets(tree))


@pytest.mark.parametrize("tree", ['"a b()"', '(a "b c()" "d")', '(a "()" "b")', '(a "b" "c")'])
def test_texts_that_xml_would_join_or_have_as_its_root_are_refused(tree: str) -> None:
    with pytest.raises(GraphError, match=r"is a text; XML has an element|two texts side by side"):
        format_text(parse_brackets(tree), "xml")


def test_most_trees_of_plain_labels_can_be_written_in_the_forms_for_any_tree() -> None:
    tree = parse_brackets('(S (NP "a b" cat) (VP sat) "it\'s")')
    for form in ("brackets", "json", "conllu", "conllu:lemma", "ast_json", "smtlib", "lisp", "newick"):
        assert parse_text(format_text(tree, form), form) == tree, form  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["json", "conllu", "ast_json", "tree_sitter", "smtlib", "lisp", "newick", "xml"])
def test_a_chain_of_20_000_nodes_is_written_and_read(form: TextForm) -> None:
    tree = chain(20_000)
    assert parse_text(format_text(tree, form), form) == tree


@pytest.mark.parametrize("form", DEEP)
def test_a_text_of_20_000_levels_is_read(form: TextForm) -> None:
    assert parse_text(DEEP[form], form).height >= 19_999


@pytest.mark.parametrize("form", ["json", "unlabelled", "smtlib", "newick", "conllu", "prefix"])
def test_values_are_written_as_numbers_if_their_label_is_given(form: TextForm) -> None:
    trees = {"newick": parse_brackets("(X (Branch A N=2.5) B)"), "prefix": Tree("sin", [Tree("N", value=-12)])}
    tree = trees.get(form, parse_brackets("(X N=2.5 (X N=-3 x))"))
    assert parse_text(format_text(tree, form, number="N"), form, number="N") == tree
    if form != "json":
        with pytest.raises(GraphError):
            format_text(tree, form)


def test_an_unknown_form_is_refused_with_all_forms_in_a_line_each() -> None:
    with pytest.raises(RecipeError, match="there is no form 'newik'; did you mean newick") as caught:
        parse_text("x", "newik")  # type: ignore[arg-type]
    assert described_forms() in str(caught.value)
    assert [line.split()[0] for line in described_forms().split("\n")] == list(FORMS)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        # words that are no nodes of the basic tree
        (
            "conllu",
            conllu("# text = a", "1-2 du _ _", "1 de 3 case", "2 le 3 det", "3 pain 0 root", "3.1 x _ _"),
            "(pain de le)",
        ),
        ("conllu:edges", conllu("1 cats 2 nsubj", "2 sleep 0 root"), "(root (sleep (nsubj cats)))"),
        ("conllu:deprel", conllu("1 cats 2 nsubj", "2 sleep 0 root"), "(root nsubj)"),
        ("conllu", conllu("1 _ 0 root"), "_"),
        ("parents", "a b c\n-1 3 0", "(c b)"),
        ("parents", "a|b|c\n5|4|4|5|0", "(X a (X b c))"),
        ("parents", "a b c d e\n7 7 6 6 8 8 8 0", "(X (X a b) (X c d) e)"),  # in the order of their first words
        (
            "ast_json",
            '[{"type":"A","children":[2,1]},{"type":"B","value":""},{"type":"C","value":"1","children":[]},0]',
            '(A (C 1) (B ""))',
        ),
        (
            "ast_json",
            '{"type": "Def", "value": "f", "children": [{"type": "Str", "value": "", "children": []}]}',
            "(Def f Str)",
        ),
        (
            "estree",
            json.dumps({"type": "Program", "sourceType": "script", "start": 0, "body": [
                {"right": {"type": "Literal", "value": "a", "raw": "'a'"}, "operator": "+=",
                 "type": "AssignmentExpression", "left": {"type": "Identifier", "name": "x", "loc": {}}},
                {"type": "Literal", "regex": {"pattern": "a"}, "raw": "/a/", "value": {}},
                {"type": "ArrayExpression", "elements": [None, {"type": "ThisExpression"}]},
                {"type": "UpdateExpression", "prefix": True, "operator": "++",
                 "argument": {"type": "Identifier", "name": "x"}},
                {"type": "StringLiteral", "value": "a", "extra": {"raw": "'a'"}}, {"type": "NullLiteral"},
                {"type": "Literal", "value": None, "raw": "null"}, {"type": "Literal", "value": 1.5},
                {"type": "Literal", "value": None, "bigint": "7", "raw": "7n"},
            ]}),
            r'''(Program (body (AssignmentExpression (left x) (operator +=) (right "\"a\"")) /a/ (ArrayExpression '''
            r'''(elements - ThisExpression)) (UpdateExpression (operator ++) prefix (argument x)) '''
            r'''"\"a\"" null null 1.5 7n))''',
        ),
        ("estree", '{"type": "File", "program": {"type": "Program", "body": []}}', "Program"),
        (
            "tree_sitter_json",
            '{"type":"m","text":"x+","startIndex":0,"children":[{"type":"id","text":"x","isNamed":true},'
            '{"type":"+","text":"+","end_point":{"row":0}}]}',
            "(m (id x) +)",
        ),
        (
            "tree_sitter",
            '(m [0, 0] - [1, 0]\n  left: (id [0, 0] - [0, 1]) "(" (MISSING ";") (ERROR (UNEXPECTED \'x\')))',
            "(m id \"(\" (MISSING ;) (ERROR (UNEXPECTED 'x')))",
        ),
        ("smtlib", '(assert (= |a b| x)) ; a comment', '(assert (= "a b" x))'),
        (
            "smtlib",
            '(f "a""b)" (g) () ((_ extract 3 0) :named))',
            r'(f "\"a\"\"b)\"" "g()" "()" (X (_ extract 3 0) :named))',
        ),
        (
            "lisp",
            "(f 'x `(a ,b ,@c) \"a\\\"b\" #\\) #| ( |# |a b|)",
            r'(f (quote x) (quasiquote (a (unquote b) (unquote-splicing c))) '
            r'"\"a\\\"b\"" "#\\)" "a b")',
        ),
        ("prefix", "12|sub Y' mul INT- 1 2 x", "(sub Y' (mul -12 x))"),
        ("prefix", "h INT+ 0 a9 pi", "(h 0 a9 pi)"),
        ("newick", "[&R] (A_1:0.1,'B''s (c)':1e-2[x],,(D)5:3):0.0;", r'''(X A_1 "B's (c)" X (5 D))'''),
        ("newick", "A;", "A"),
        ("penn", "( (S (NP-SBJ-1 (NNP Ann)) (VP (VBZ is) (NP=2 (NNS 3s) (-NONE- *)) (. .))) )", "(S Ann (VP is 3s .))"),
        (
            "xml",
            '<?xml version="1.0" encoding="latin-1"?><!-- c --><a b="&lt;"> x <c/> y\n z<![CDATA[<]]></a>',
            '(a (@b <) x "c()" "y z<")',
        ),
        (
            "mathml",
            '<m:math xmlns:m="u"><m:semantics><m:apply><m:ci>f</m:ci><m:cn type="rational">1<m:sep/>2</m:cn><m:pi/>'
            "</m:apply><m:annotation>t</m:annotation></m:semantics></m:math>",
            "(f 1/2 pi)",
        ),
        (
            "mathml",
            "<apply><int/><bvar><ci> x </ci></bvar><apply><apply><inverse/><sin/></apply><ci>x</ci></apply></apply>",
            "(int (bvar x) (apply (inverse sin) x))",
        ),
        (
            "python",
            "def f(x=1):\n    return -x",
            "(Module (FunctionDef f (arguments (args (arg x)) (defaults 1)) (Return (USub x))))",
        ),
    ],
)  # fmt: skip
def test_a_text_means_this_tree(form: TextForm, text: str, expected: str) -> None:
    assert str(parse_text(text, form)) == expected


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("conllu", "1 a 0 root", "1 columns"),
        ("conllu", conllu("1 a 2 x", "2 b 1 y"), "0 nodes are roots"),
        ("conllu", conllu("1 a 0 root", "2 b 0 root"), "2 nodes are roots .* 1, 2"),
        ("conllu", conllu("1 a 0 root", "2 b 3 x", "3 c 2 x"), "node 2 is not below the root"),
        ("conllu", conllu("1 a 0 root", "2 b 7 x"), "the head of node 2 is 7"),
        ("conllu", conllu("1 a 0 root", "3 b 1 x"), "the word 3 follows the word 1"),
        ("conllu", conllu("1 a _ root"), "the head of the word 1 is '_'"),
        ("conllu", conllu("1 a 0 root", "", "1 a 0 root"), "a second sentence"),
        ("conllu", conllu("x a 0 root"), "the ID 'x'"),
        ("conllu:lemma", conllu("1 a 0 root"), "no word has a lemma"),
        ("conllu:edges", conllu("1 a 0 _"), "no word has a deprel"),
        ("conllu", "# a", "there is no word"),
        ("parents", "a b\n2", "1 pointers for 2 words"),
        ("parents", "a b\n2 x", "the pointer 'x'"),
        ("parents", "a b\n2 1", "0 nodes are roots"),
        ("parents", "a b\n0 -2", "the pointer '-2'"),
        ("parents", "a b c\n-1 1 0", "the head of node 2 is 1"),
        ("parents", "a b", "1 line"),
        ("ast_json", '[{"type": "A", "children": [1]}]', "node 0 has the child 1; the nodes are 0 to 0"),
        ("ast_json", '[{"type": "A", "children": [0]}]', "node 0 is the child of 1 nodes"),
        ("ast_json", '[{"type": "A", "children": [1, 1]}, {"type": "B"}]', "node 1 is the child of 2 nodes"),
        ("ast_json", '[{"type": "A"}, {"type": "B", "children": [1]}]', "1 nodes are not below the root"),
        ("ast_json", "[]", "a list of nodes is needed"),
        ("ast_json", '{"type": "A", "childs": []}', "'A' has the fields 'childs'"),
        ("ast_json", '{"type": "A", "children": "x"}', "the children of 'A' are 'x'"),
        ("ast_json", '[{"type": "A"}', "this is not JSON"),
        ("estree", '{"type": "A", "body": {"name": "x"}}', "a node is an object with a text 'type'"),
        ("estree", "3", "a node is an object"),
        ("tree_sitter_json", '{"type": "a", "children": ["x"]}', "a node is an object .* not 'x'"),
        ("tree_sitter_json", '{"type": "a", "namedChildren": []}', "'a' has the fields 'namedChildren'"),
        ("tree_sitter", "(f (g)", "the list that begins in column 1 is not closed"),
        ("tree_sitter", "(f x)", "'x' is not in brackets|looks like brackets"),
        ("tree_sitter", "(f ())", "a node without a type"),
        ("smtlib", "(f x", "the list that begins in column 1 is not closed"),
        ("smtlib", "(f x) y", "'y' after the end"),
        ("smtlib", "(f |a)", "a quote that is not closed"),
        ("smtlib", "(f 'x)", "a quote that is not closed|unexpected"),
        ("smtlib", "; nothing", "there is no expression"),
        ("lisp", "(f #(1 2))", "unexpected '#'"),
        ("lisp", "(f ')", "closes no list"),
        ("prefix", "mul x", "mul has 1 of its 2 arguments"),
        ("prefix", "add x y z", "'z' after the end"),
        ("prefix", "add x sinn y", "unknown word 'sinn'; did you mean"),
        ("prefix", "add x INT 3", "INT, which begins a number in a negative base"),
        ("prefix", "sin INT+ 12", "no whole number in base 10"),
        ("prefix", "sin INT+ 0 1", "no whole number"),
        ("prefix", "sin INT- 0", "no whole number"),
        ("prefix", "sin INT+", "INT\\+ without its digits"),
        ("newick", "(A,B)", "the tree has no end"),
        ("newick", "(A,(B,C);", "column 9: the bracket of column 1 is not closed; expected '\\)'"),
        ("newick", "(A,(B,(C;", "the bracket of column 7 is not closed, and 2 before it"),
        ("newick", "(A,B", "column 5: the bracket of column 1 is not closed"),
        ("newick", "(A,B)\n(C,D);", "line 2, column 1: a bracket after a node; expected ';'"),
        ("newick", "(A:1e999,B);", "the length '1e999' is too large"),
        ("newick", "([b[c]],B);", "'\\]' ends no comment; expected comments without brackets in them"),
        ("newick", "#NEXUS\nbegin trees;\n", "this is a file of NEXUS; expected one tree, as after '=' in"),
        ("newick", "tree one = [&R] (1,2);", "'tree' before the tree; expected .* names of its block 'translate'"),
        ("newick", "(A,B));", r"'\)' outside of all brackets"),
        ("newick", "(A B,C);", "a second name of one node, 'B'"),
        ("newick", "(A:x,B);", "the length of a branch is 'x'"),
        ("newick", "(A,B)(C);", "a bracket after a node"),
        ("newick", "(A,B);C;", "'C' after the end"),
        ("newick", "('A,B);", "a name in quotes is not closed; expected a quote at its end"),
        ("newick", "(A[,B);", "a comment is not closed; expected '\\]' at its end"),
        ("penn", "(S (NN a)) (S (NN b))", "2 sentences with words"),
        ("penn", "(S (-NONE- *))", "no word"),
        ("penn", "(S (NN a)", "the bracket is not closed"),
        ("xml", "<a><b></a>", "this is not XML: mismatched tag"),
        ("xml", "<a/><b/>", "this is not XML: junk"),
        ("mathml", "<math><mi>x</mi></math>", "<mi> is presentation MathML|looks like XML"),
        ("mathml", "<math><cn>1</cn><cn>2</cn></math>", "<math> has 2 children"),
        ("mathml", "<apply/>", "<apply> has no operator"),
        ("mathml", "<cn>1<sep/>2</cn>", "<cn> with <sep/> has the type"),
        ("python", "def f(:", "this is not Python"),
        ("python", "-" * 20_000 + "1", "nested deeper than Python reads"),
        ("python", "f(" * 300 + "x" + ")" * 300, "column 402: the code is nested deeper than Python reads"),
        ("python", "x = '\0'", "this is not Python"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_tree_is_refused(form: TextForm, text: str, problem: str) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        parse_text(text, form)
    assert caught.value.expected


@pytest.mark.parametrize("form", ["xml", "mathml"])
def test_entities_that_would_fill_the_memory_are_refused_and_files_of_others_are_not_read(
    form: TextForm, tmp_path: Path
) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "' + "&b;" * 100 + '">]><a>&c;</a>'
    secret = tmp_path / "secret"
    secret.write_text("secret")
    outside = f'<!DOCTYPE a [<!ENTITY b SYSTEM "{secret.as_uri()}">]><a>&b;</a>'
    for text in (bomb, outside, '<!DOCTYPE a SYSTEM "http://a.example/a.dtd"><a/>'):
        with pytest.raises(ParseError, match="the document has a DTD"):
            parse_text(text, form)
    with pytest.raises(ParseError, match=r"undefined entity|this looks like XML"):
        parse_text("<a>&b;</a>", form)


def test_the_tree_of_estree_does_not_depend_on_the_order_of_fields() -> None:
    node = {
        "type": "IfStatement",
        "test": {"type": "Identifier", "name": "a"},
        "alternate": None,
        "consequent": {"type": "EmptyStatement"},
    }
    other = dict(reversed(node.items()))
    expected = "(IfStatement (test a) (consequent EmptyStatement))"
    assert str(parse_text(json.dumps(node), "estree")) == str(parse_text(json.dumps(other), "estree")) == expected


def test_code_is_never_run(tmp_path: Path) -> None:
    file = tmp_path / "made"
    parse_text(f"open({str(file)!r}, 'w').close()", "python")
    assert not file.exists()


def test_the_page_on_trees_lists_all_forms_with_what_their_examples_mean() -> None:
    page = (DOCS / "own_trees.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*`) \| (.*) \| (.*) \| (yes|no) \|$", page, re.MULTILINE)
    listed = [name for names, *_ in rows for name in re.findall(r"`([\w:]+)`", names)]
    assert sorted(listed) == sorted(FORMS)
    for names, example, tree, written in rows:
        name = re.findall(r"`([\w:]+)`", names)[-1]
        assert written == ("yes" if FORMS[name].write else "no"), name
        if re.fullmatch("`.*`", example):
            assert str(parse_text(example[1:-1], name)) == tree[1:-1], name
