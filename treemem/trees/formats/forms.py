"""The registry of forms: how trees are written in texts and files, and what reads and writes each."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from treemem.errors import GraphError, TreememError
from treemem.trees.formats.as_tree import as_tree
from treemem.trees.formats.brackets import CONSTITUENT, format_brackets, parse_brackets
from treemem.trees.formats.dependencies import WordField, format_conllu, format_parents, parse_conllu, parse_parents
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.formats.form_signs import TITLES
from treemem.trees.formats.json_text import parse_json
from treemem.trees.formats.label_text import format_label
from treemem.trees.formats.listops import format_listops, parse_listops
from treemem.trees.formats.logic import format_logic, parse_logic
from treemem.trees.formats.markup import format_mathml, format_xml, parse_mathml, parse_xml
from treemem.trees.formats.newick import format_newick, newick_texts, parse_newick
from treemem.trees.formats.penn import parse_penn
from treemem.trees.formats.preorder import format_preorder, parse_preorder
from treemem.trees.formats.python_code import parse_python
from treemem.trees.formats.s_expressions import Dialect, expressions_of, format_s_expression, parse_s_expression
from treemem.trees.formats.symbolic_prefix import (
    format_symbolic_prefix,
    parse_symbolic_prefix,
    problems_and_solutions,
)
from treemem.trees.formats.syntax_json import format_ast_json, parse_ast_json, parse_estree, parse_tree_sitter_json
from treemem.trees.tree import Tree, words_of

TextForm = Literal[
    "brackets",
    "labelled",
    "unlabelled",
    "json",
    "expression",
    "equation",
    "preorder",
    "listops",
    "logic",
    "penn",
    "conllu",
    "conllu:lemma",
    "conllu:upos",
    "conllu:xpos",
    "conllu:deprel",
    "conllu:edges",
    "parents",
    "ast_json",
    "estree",
    "tree_sitter_json",
    "tree_sitter",
    "python",
    "smtlib",
    "lisp",
    "prefix",
    "newick",
    "xml",
    "mathml",
]
"""The name of a form; see ``FORMS``."""

Line = tuple[int, str]
"""A line of a file with its number, or a text with the number of its first line."""


class Form(NamedTuple):
    """How trees are written in texts.

    Attributes:
        description: in one line.
        example: a text.
        parse: returns the tree of a text. Raises ``ParseError``.
        write: returns the text of a tree, which ``parse`` reads back. Raises ``GraphError`` for a tree that the form
            cannot hold. None if it holds more than a tree.
        texts: divides the lines of a file into texts; None: each line that is not blank, or if the first line is no
            tree, the whole file.
        keeps_numbers: whether ``parse`` and ``write`` take the label of leaves that keep numbers as values.
    """

    description: str
    example: str
    parse: Callable[..., Tree]
    write: Callable[..., str] | None
    texts: Callable[[Iterable[Line]], Iterator[Line]] | None
    keeps_numbers: bool = False


def _nonblank(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line[1].strip())


def _sentences(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield what stands between blank lines, and is not only a comment."""
    parts: list[str] = []
    first, has_word = 0, False
    for number, line in lines:
        if line.strip():
            first = first if parts else number
            parts.append(line)
            has_word = has_word or line[0] != "#"
            continue
        if has_word:
            yield first, "\n".join(parts)
        parts, has_word = [], False
    if has_word:
        yield first, "\n".join(parts)


def _pairs_of_lines(lines: Iterable[Line]) -> Iterator[Line]:
    remaining = _nonblank(lines)
    for number, words in remaining:
        yield number, f"{words}\n{next(remaining, (0, ''))[1]}"


def _whole(lines: Iterable[Line]) -> Iterator[Line]:
    yield 1, "\n".join(line for _, line in lines)


def divided(form: Form, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the texts of a file, each with its first line."""
    if form.texts is not None:
        yield from form.texts(lines)
        return
    lines = iter(lines)
    remaining = _nonblank(lines)
    first = next(remaining, None)
    if first is None:
        return
    head, second = first[1].lstrip(), None
    if not _is_tree(head, form) and head[:1] in ("[", "{", "<"):
        second = next(remaining, None)
        if second is not None and (head[:2] == "<?" or not _is_tree(second[1], form)):
            blank = [""] * (second[0] - first[0] - 1)
            yield first[0], "\n".join([first[1], *blank, second[1], *(line for _, line in lines)])
            return
    yield first
    if second is not None:
        yield second
    yield from remaining


def _is_tree(text: str, form: Form) -> bool:
    try:
        form.parse(text)
    except TreememError:
        return False
    return True


def _write_unlabelled(tree: Tree) -> str:
    def expand(node: Tree) -> list[Tree | str]:
        if not node.children:
            return [format_label(node.label)]
        if node.label != CONSTITUENT:
            raise GraphError(
                f"the node {node.label!r:.100} has a label; brackets without labels are nodes {CONSTITUENT!r}"
            )
        return ["(", *node.children, ")"]

    return " ".join(words_of([tree], expand))


def _write_json(tree: Tree, number: str | None = None) -> str:
    def expand(node: Tree) -> list[Tree | str]:
        label = json.dumps(node.label, ensure_ascii=False)
        if node.value is not None:
            if node.label == number:
                return [repr(node.value)]
            return [f'{{"label": {label}, "value": {node.value!r}}}']
        parts: list[Tree | str] = [f"[{label}"] if node.children else [label if node is not tree else f"[{label}]"]
        for child in node.children:
            parts += [", ", child]
        return [*parts, "]"] if node.children else parts

    return "".join(words_of([tree], expand))


def _read_json(text: str, number: str | None = None) -> Tree:
    return as_tree(parse_json(text), number=number)


def _expression(text: str, number: str | None = None) -> Tree:
    return parse_expression(text, numeric=number is not None)


def _equation(text: str, number: str | None = None) -> Tree:
    return parse_equation(text, numeric=number is not None)


def _bracketed(description: str, example: str) -> Form:
    return Form(description, example, parse_brackets, format_brackets, _nonblank, keeps_numbers=True)


def _conllu(description: str, field: WordField = "form", *, edges: bool = False) -> Form:
    example = "1\tcats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_\t_"
    parse = functools.partial(parse_conllu, field=field, edges=edges)
    return Form(description, example, parse, functools.partial(format_conllu, field=field, edges=edges), _sentences)


def _s_expression(dialect: Dialect, description: str, example: str) -> Form:
    return Form(
        description,
        example,
        functools.partial(parse_s_expression, dialect=dialect),
        functools.partial(format_s_expression, dialect=dialect),
        functools.partial(expressions_of, dialect=dialect),
    )


FORMS: dict[str, Form] = {
    "brackets": _bracketed("labels in brackets", "(f x (g y))"),
    "labelled": _bracketed("as brackets, for texts that look unlabelled and are not", "( f ( g x ) )"),
    "unlabelled": Form(
        "brackets without labels; inner nodes get the label X",
        "( ( a b ) c )",
        functools.partial(parse_brackets, first="child"),
        _write_unlabelled,
        _nonblank,
        keeps_numbers=True,
    ),
    "json": Form("lists of a label and children, or objects", '["f", "x", 3]', _read_json, _write_json, None, True),
    "expression": Form("an expression in infix", "sin(x) + 1", _expression, format_equation, _nonblank, True),
    "equation": Form("an equation in infix", "x + y = y + x", _equation, format_equation, _nonblank, True),
    "preorder": Form(
        "the labels of an equation, a function before its arguments",
        "Add Symbol:var_0 Integer:2",
        parse_preorder,
        format_preorder,
        _nonblank,
    ),
    "listops": Form("ListOps, plain or in brackets", "[MAX 2 [MIN 4 7 ] ]", parse_listops, format_listops, _nonblank),
    "logic": Form("formulas of logical inference", "( a ( and b ) )", parse_logic, format_logic, _nonblank),
    "penn": Form(
        "the Penn Treebank: phrases over words, without parts of speech and function tags",
        "( (S (NP-SBJ (PRP I)) (VP (VBP see) (NP (PRP it)))) )",
        parse_penn,
        None,
        functools.partial(expressions_of, dialect="penn"),
    ),
    "conllu": _conllu("CoNLL-U: words over their dependents"),
    "conllu:lemma": _conllu("CoNLL-U with lemmas as labels", "lemma"),
    "conllu:upos": _conllu("CoNLL-U with universal parts of speech as labels", "upos"),
    "conllu:xpos": _conllu("CoNLL-U with the treebank's parts of speech as labels", "xpos"),
    "conllu:deprel": _conllu("CoNLL-U with relations as labels", "deprel"),
    "conllu:edges": _conllu("CoNLL-U with a node for each relation, above its word", edges=True),
    "parents": Form(
        "a line of words and one of parent pointers; in a file the pointers, with the words in FILE.toks beside it",
        "the cats sleep\n2 3 0",
        parse_parents,
        format_parents,
        _pairs_of_lines,
    ),
    "ast_json": Form(
        "syntax trees with type, value and children, nested or as indices (py150, js150)",
        '[{"type": "Assign", "children": [1, 2]}, {"type": "Name", "value": "x"}, {"type": "Num", "value": "1"}]',
        parse_ast_json,
        format_ast_json,
        None,
    ),
    "estree": Form(
        "ESTree, which parsers of JavaScript write",
        '{"type": "UnaryExpression", "operator": "-", "argument": {"type": "Identifier", "name": "x"}}',
        parse_estree,
        None,
        None,
    ),
    "tree_sitter_json": Form(
        "nodes of tree-sitter with type, children and text",
        '{"type": "sum", "children": [{"type": "id", "text": "x"}, {"type": "+", "text": "+"}]}',
        parse_tree_sitter_json,
        None,
        None,
    ),
    "tree_sitter": _s_expression(
        "tree_sitter", "s-expressions of tree-sitter", '(sum left: (id) "+" right: (call function: (id)))'
    ),
    "python": Form("Python code, by its syntax tree; never run", "y = f(x) + 1", parse_python, None, _whole, True),
    "smtlib": _s_expression("smtlib", "SMT-LIB", "(let ((|a b| (+ x 1))) (* |a b| |a b|))"),
    "lisp": _s_expression("lisp", "s-expressions of Lisp", "(define (f x) (cons x '(a b)))"),
    "prefix": Form(
        "prefix notation of SymbolicMathematics",
        "sub Y' mul INT+ 1 2 x",
        parse_symbolic_prefix,
        format_symbolic_prefix,
        problems_and_solutions,
    ),
    "newick": Form(
        "Newick; with number= the lengths of branches are values, else they are left out",
        "(A:0.1,(B,'C d')e:0.2);",
        parse_newick,
        format_newick,
        newick_texts,
        keeps_numbers=True,
    ),
    "xml": Form("XML without a DTD", '<call line="3"><name>f</name><empty/></call>', parse_xml, format_xml, None),
    "mathml": Form(
        "content MathML",
        "<math><apply><plus/><ci>x</ci><cn>2</cn></apply></math>",
        parse_mathml,
        format_mathml,
        None,
    ),
}
"""All forms of texts by their names; ``conllu:lemma`` is a variant of ``conllu``."""

TEXT_FORMS: tuple[TextForm, ...] = get_args(TextForm)
assert tuple(FORMS) == TEXT_FORMS
assert TITLES.keys() <= FORMS.keys()


def described_forms() -> str:
    """Return the names of all forms with their descriptions, a line each."""
    width = max(map(len, FORMS))
    return "\n".join(f"{name:{width}}  {form.description}" for name, form in FORMS.items())
