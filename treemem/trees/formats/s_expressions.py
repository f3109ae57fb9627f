"""Trees in s-expressions: SMT-LIB, Lisp and tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from treemem.errors import GraphError, ParseError
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.form_signs import is_of_tree_sitter
from treemem.trees.formats.other_forms import other_form
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree, words_of

Dialect = Literal["smtlib", "lisp", "tree_sitter"]

EMPTY = "()"
"""What ends the label of a list of one item, so that ``(f)`` is not ``f``; alone it is the label of the list ``()``."""

_OTHER = r"(?P<open>\()|(?P<close>\))|(?P<wrong>.)"
_TOKENS: dict[str, re.Pattern[str]] = {
    "smtlib": re.compile(
        r'(?P<space>\s+|;[^\n]*)|(?P<text>"(?:[^"]|"")*")|\|(?P<quoted>[^|\\]*)\|'
        rf'|(?P<atom>:?[^\s()";|\'`,\[\]{{}}:]+)|{_OTHER}',
        re.DOTALL,
    ),
    "lisp": re.compile(
        rf'(?P<space>\s+|;[^\n]*|\#\|.*?\|\#)|(?P<text>"(?:[^"\\]|\\.)*")|\|(?P<quoted>[^|\\]*)\||(?P<quote>\'|`|,@|,)'
        rf'|(?P<atom>(?:\#\\.|(?!\#\()[^\s()";|\'`,\[\]{{}}])+)|{_OTHER}',
        re.DOTALL,
    ),
    "tree_sitter": re.compile(
        r"(?P<space>\s+|\[[0-9]+, [0-9]+\](?: - \[[0-9]+, [0-9]+\])?|[A-Za-z_][\w.]*:(?=\s))"
        rf'|"(?P<anonymous>(?:[^"\\]|\\.)*)"|(?P<text>\'(?:[^\'\\]|\\.)*\')|(?P<atom>[\w.-]+)|{_OTHER}',
        re.DOTALL,
    ),
}
_QUOTES = {"'": "quote", "`": "quasiquote", ",": "unquote", ",@": "unquote-splicing"}
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_s_expression(text: str, dialect: Dialect) -> Tree:
    """Read one s-expression. The first item of a list is the label of the node, and the others are its children.

    A list whose first item is a list is a node ``X`` of all items, ``()`` is the label of the empty list, and a list of
    one item ``f`` is a leaf ``f()``. Texts keep their quotes, and ``|a b|`` is the symbol ``a b``. Nothing is expanded:
    ``let`` is a node like any other.

    Args:
        text: the expression; comments begin with ``;``.
        dialect: ``"smtlib"``, whose texts have a quote as ``""``; ``"lisp"``, whose texts have it as ``\\"``, and in
            which ``'x`` is ``(quote x)``; or ``"tree_sitter"``: there, every node is a list, tokens without a name are
            in quotes, and places and the names of fields, such as ``left:``, are left out.

    Raises:
        ParseError: the text is not one such expression.

    Example:
        >>> str(parse_s_expression("(let ((|a b| (+ x 1))) (f |a b|))", "smtlib"))
        '(let (X ("a b" (+ x 1))) (f "a b"))'
        >>> str(parse_s_expression('(sum left: (name) "+" right: (name))', "tree_sitter"))
        '(sum name + name)'
    """
    is_named = dialect == "tree_sitter"
    open_nodes: list[tuple[str | None, list[Tree], int]] = []  # label, children and place; no label before any item
    closing_quotes: list[int] = []  # how many lists are open around each 'x
    tree: Tree | None = None
    for token in _TOKENS[dialect].finditer(text):
        sort = token.lastgroup
        if sort == "space":
            continue
        if tree is not None and not open_nodes:
            what = f"{shorten(token.group())} after the end of the expression"
            raise ParseError(what, text, token.start(), "the end of the text")
        if sort == "open":
            if is_named and open_nodes and open_nodes[-1][0] is None:
                raise ParseError("a node without a type", text, token.start(), "the type of a node after '('")
            open_nodes.append((None, [], token.start()))
            continue
        if sort == "quote":
            open_nodes.append((_QUOTES[token.group()], [], token.start()))
            closing_quotes.append(len(open_nodes))
            continue
        if sort == "close":
            if not open_nodes or (closing_quotes and closing_quotes[-1] == len(open_nodes)):
                raise ParseError("')' closes no list", text, token.start(), "an expression")
            tree = _listed(*open_nodes.pop(), text, is_named)
        elif sort == "wrong":
            what = "a quote that is not closed" if token.group() in "\"'|" else f"unexpected {token.group()!r}"
            raise ParseError(what, text, token.start(), "a list, a symbol or a text")
        else:
            label = _label(token)
            if open_nodes and open_nodes[-1][0] is None and not open_nodes[-1][1]:
                open_nodes[-1] = (label, [], open_nodes[-1][2])
                continue
            if is_named and sort == "atom" and not (open_nodes and open_nodes[-1][0] in ("MISSING", "UNEXPECTED")):
                raise ParseError(f"{shorten(label)} is not in brackets", text, token.start(), "a node such as (name)")
            tree = Tree(label)
        while open_nodes:
            label_of_list, children, _ = open_nodes[-1]
            children.append(tree)
            if not closing_quotes or closing_quotes[-1] != len(open_nodes):
                break
            closing_quotes.pop()
            open_nodes.pop()
            tree = Tree(str(label_of_list), children)
    if open_nodes:
        what = f"the list that begins in column {open_nodes[-1][2] - text.rfind(chr(10), 0, open_nodes[-1][2])}"
        raise ParseError(f"{what} is not closed", text, len(text), "')'")
    if tree is None:
        raise ParseError("there is no expression", text, len(text), "a list or a symbol")
    is_field = not is_named and ": " in text and is_of_tree_sitter(text)
    if is_field or (not tree.children and other_form(text, dialect) is not None):
        raise ParseError("this is no expression of the dialect", text, 0, "lists and symbols")
    return tree


def _listed(label: str | None, children: list[Tree], place: int, text: str, is_named: bool) -> Tree:
    if children:
        return Tree(CONSTITUENT if label is None else label, children)
    if not is_named:
        return Tree(EMPTY if label is None else label + EMPTY)
    if label is None:
        raise ParseError("a node without a type", text, place, "the type of a node after '('")
    return Tree(label)


def _label(token: re.Match[str]) -> str:
    if token.lastgroup == "quoted":
        return token["quoted"]
    return _ESCAPED.sub(r"\1", token["anonymous"]) if token.lastgroup == "anonymous" else token.group()


def format_s_expression(tree: Tree, dialect: Dialect) -> str:
    """Return the text of a tree, as :func:`parse_s_expression` reads it.

    Raises:
        GraphError: a label that no symbol or text of the dialect can be.

    Example:
        >>> format_s_expression(Tree("f", ["a b", "g()", '"text"']), "smtlib")
        '(f |a b| (g) "text")'
    """
    is_named = dialect == "tree_sitter"

    def expand(node: Tree) -> list[Tree | str]:
        label = node.label
        if node.children:
            parts: list[Tree | str] = [f" ({_named(label) if is_named else _word(label, dialect)}"]
            return [*parts, *node.children, ")"]
        if is_named:
            return [f" {_token(label)}"]
        if label == EMPTY or not label.endswith(EMPTY):
            return [f" {EMPTY if label == EMPTY else _word(label, dialect)}"]
        return [f" ({_word(label.removesuffix(EMPTY), dialect)})"]

    return "".join(words_of([tree], expand))[1:]


def _word(label: str, dialect: Dialect) -> str:
    """Return the symbol or text of a label."""
    token = _TOKENS[dialect].fullmatch(label)
    if token is not None and token.lastgroup in ("atom", "text"):
        return label
    if "|" in label or "\\" in label:
        raise GraphError(f"{shorten(label)} is neither a symbol nor a text: it has '|' or a backslash")
    return f"|{label}|"


def _token(label: str) -> str:
    """Return a leaf of tree-sitter: a node, or in quotes a token without a name."""
    if re.fullmatch(r"[A-Za-z_]\w*", label):
        return f"({label})"
    escaped = label.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _named(label: str) -> str:
    if not re.fullmatch(r"[\w.-]+", label):
        raise GraphError(
            f"{shorten(label)} cannot be the type of a node: it has other signs than letters, digits and _"
        )
    return label


def expressions_of(lines: Iterable[tuple[int, str]], dialect: Dialect | Literal["penn"]) -> Iterator[tuple[int, str]]:
    """Yield the expressions of lines, each with its first line. Several may share a line, and one may span several.

    Args:
        lines: with their numbers.
        dialect: says what is a text or a comment, in which brackets do not count.
    """
    marks = _MARKS[dialect]
    parts: list[str] = []
    first, depth, end_of_text = 0, 0, None
    for number, line in lines:
        first = first if parts else number
        begin = place = 0
        while mark := (end_of_text or marks).search(line, place):
            place = mark.end()
            sign = mark.group()
            if end_of_text is not None:
                end_of_text = None if sign in _ENDS else end_of_text
            elif sign in _ENDS:
                end_of_text = _ENDS[sign] if dialect == "smtlib" or sign == "|" else _ENDS_WITH_ESCAPES[sign]
            elif sign == "(":
                depth += 1
            elif sign == ")":
                depth -= 1
                if depth <= 0:
                    yield first, "\n".join([*parts, line[begin:place]])
                    first, parts, begin, depth = number, [], place, 0
        if depth or end_of_text is not None:
            parts.append(line[begin:])
            continue
        rest, parts = "\n".join([*parts, line[begin:]]), []
        if rest.strip() and (dialect == "penn" or not _COMMENT.fullmatch(rest)):
            yield first, rest
    if parts:
        yield first, "\n".join(parts)


_MARKS = {
    "smtlib": re.compile(r';.*|["|()]'),
    "lisp": re.compile(r';.*|\#\\.|["|()]'),
    "tree_sitter": re.compile(r"[\"'()]"),
    "penn": re.compile(r"[()]"),
}
_COMMENT = re.compile(r"\s*(?:;[^\n]*|\#\|.*?\|\#\s*)", re.DOTALL)
_ENDS = {sign: re.compile(re.escape(sign)) for sign in "\"'|"}
_ENDS_WITH_ESCAPES = {sign: re.compile(rf"\\.|{sign}") for sign in "\"'"}
