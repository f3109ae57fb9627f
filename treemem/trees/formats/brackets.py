"""Trees as bracketed text, ``(label child child)``: what ``str(tree)`` prints and what reads back as the same tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from treemem.checked_options import checked_choice
from treemem.errors import GraphError, ParseError
from treemem.trees.formats.label_text import VALUE_SUFFIX, ends_in_comma, is_label
from treemem.trees.formats.other_forms import other_form
from treemem.trees.formats.source_text import decode_source, shorten
from treemem.trees.tree import Tree, format_brackets

__all__ = ["CONSTITUENT", "format_brackets", "parse_brackets"]

CONSTITUENT = "X"  # the label of inner nodes that the text gives none

_SPACE = r"(?P<space>[ \t\r\n\f\v]+)|(?P<open>\()|(?P<close>\))"
_BARE = r"(?P<bare>[^ \t\r\n\f\v()]+)"
_WORD = re.compile(rf"{_SPACE}|{_BARE}")
_ESCAPED_WORD = re.compile(rf"{_SPACE}|(?P<bare>(?:[^ \t\r\n\f\v()\\]|\\[()]?)+)")
_QUOTED = re.compile(r'(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*")(?P<rest>[^ \t\r\n\f\v()]*)', re.DOTALL)
_LONE_QUOTE = re.compile(r'(?P<bare>")(?=[ \t\r\n\f\v()]|\Z)')
_UNCLOSED = re.compile(r'(?P<unclosed>")')
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_LABELLED = re.compile(r"\s*\(\s*[^\s()]")
_ESCAPED_BRACKET = re.compile(r"\\([()])")


def parse_brackets(
    text: str | bytes, *, first: Literal["label", "child"] = "label", number: str | None = None, values: bool = True
) -> Tree:
    r"""Read one tree from ``(label child child)``, or from ``(child child)``.

    A leaf is a bare label; ``label=2.5`` is a leaf with a value. A label with spaces, brackets or quotes, or one that
    looks like ``label=value``, stands in double quotes with the escapes of JSON. A quote with a space or bracket after
    it is a label if no quoted label begins there, as in ``(`` ") (NN house) ('' ")``: such a label has no space at its
    ends and only brackets that match. ``\(`` and ``\)`` are brackets in a label.

    Args:
        text: the tree.
        first: what the first item of a bracket is: ``"label"``: the label of the node, as in the sentiment treebank and
            in ``str(tree)``, where ``(label)`` is the leaf ``label``; ``"child"``: a child like the others, as in
            logical inference, of a node that has the label ``X``.
        number: the label of leaves that keep numbers as values: ``2``, ``3.5`` and ``-1e3`` are such leaves. By default
            they are labels. Numbers in quotes are labels.
        values: whether ``label=2.5`` is a leaf with a value, whatever its label. If not, it is a label, unless it
            begins with ``number``.

    Raises:
        ParseError: the text is not one bracketed tree. A text that looks like JSON, an expression or another form is
            refused; a label that looks so needs quotes if it is the whole text.
        RecipeError: another ``first``.

    Example:
        >>> parse_brackets("(max 3 (neg 4) 1)").children[1].label
        'neg'
        >>> str(parse_brackets("( a ( and b ) )", first="child"))
        '(X a (X and b))'
        >>> parse_brackets("(max 3 x)", number="Number").children[0].value
        3.0
    """
    checked_choice("first", first, ("label", "child"))
    text = decode_source(text).removeprefix("\ufeff")
    read = _Reader(text, first, number, values)
    try:
        tree = read.tree(_tokens(text))
    except ParseError as error:
        if "\\)" in text:
            try:  # a label may end in a backslash
                return read.tree(_tokens(text, escapes=False))
            except ParseError:
                pass
        if (form := other_form(text)) is not None:
            raise ParseError(f"this looks like {form}", text, error.offset, "brackets") from error
        raise
    if not tree.children and tree.value is None and not tree.label.isalnum():
        _check_single(tree.label, text)
    if "," in text and (",(" in text or ")," in text):
        _check_commas(text)
    return tree


class _Reader:
    """Makes a tree of tokens; see :func:`parse_brackets` for the options."""

    def __init__(self, text: str, first: str, number: str | None, values: bool) -> None:
        self.text = text
        self.is_label_first = first == "label"
        self.number = number
        self.values = values

    def tree(self, tokens: Iterable[re.Match[str]]) -> Tree:
        text, is_label_first, leaf = self.text, self.is_label_first, self.leaf
        open_nodes: list[tuple[re.Match[str] | None, int, list[Tree]]] = []
        tree: Tree | None = None
        expects_label = False
        for token in tokens:
            sort = token.lastgroup
            if sort == "space":
                continue
            if tree is not None and not open_nodes:
                what = f"{shorten(token.group())} after the end of the tree"
                raise ParseError(what, text, token.start(), "the end of the text")
            if sort == "open":
                if expects_label:
                    expected = (
                        "a label after '('; if no bracket has a label, parse_brackets(text, first=\"child\") reads it, "
                        'and text="unlabelled" in a table'
                    )
                    if tree is None and not open_nodes and _is_in_penn_bracket(text):
                        expected = (
                            "a label after '('; around trees of the Penn Treebank, remove the first and the last "
                            'bracket, or read their file with read_penn_trees, or give text="penn" in a table'
                        )
                    raise ParseError("a node without a label", text, token.start(), expected)
                expects_label = is_label_first
                if not is_label_first:
                    open_nodes.append((None, token.start(), []))
                continue
            if sort == "close":
                if expects_label or not open_nodes:
                    expected = "a label after '('" if expects_label else "a tree"
                    raise ParseError("')' closes no node", text, token.start(), expected)
                head, opened, children = open_nodes.pop()
                if not children:
                    if head is None:
                        raise ParseError("a bracket without a child", text, token.start(), "a label or '('")
                    tree = leaf(head)
                else:
                    tree = Tree(CONSTITUENT if head is None else self.inner_label(head), children)
            elif expects_label:
                expects_label = False
                open_nodes.append((token, token.start(), []))
                continue
            else:
                tree = leaf(token)
            if open_nodes:
                open_nodes[-1][2].append(tree)
        if expects_label:
            raise ParseError("the text ends within a node", text, len(text), "a label after '('")
        if open_nodes:
            head, opened, _ = open_nodes[-1]
            what = f"the bracket of column {opened + 1}" if head is None else f"the node {shorten(_label(head, text))}"
            raise ParseError(f"{what} is not closed", text, len(text), "a child or ')'")
        if tree is None:
            raise ParseError("the text holds no tree", text, len(text), "a label or '('")
        return tree

    def leaf(self, token: re.Match[str]) -> Tree:
        is_bare, tail = token.lastgroup == "bare", ""
        label = token.group()
        if not is_bare or "\\" in label:
            label = _label(token, self.text)
        if is_bare:
            if self.number is not None and _NUMBER.match(label):
                label, tail = self.number, f"={label}"
            elif "=" in label and (suffix := VALUE_SUFFIX.search(label)) and suffix.start() > 0:
                name = label[: suffix.start()]
                label, tail = (name, suffix.group()) if self.values or name == self.number else (label, "")
        else:
            tail = token["rest"]
            if tail and not self.values and label != self.number:
                names = "no leaf has a value" if self.number is None else f"only {self.number!r} has values"
                what = f"{shorten(label)} has a value, and {names} here; number names the label of leaves with values"
                raise ParseError(what, self.text, token.start(), "a label")
        if not tail:
            return Tree(label)
        try:
            return Tree(label, value=float(tail[1:]))
        except GraphError as error:
            expected = "a finite value; or the label in quotes"
            raise ParseError(str(error), self.text, token.start(), expected) from error

    def inner_label(self, token: re.Match[str]) -> str:
        is_bare, label = token.lastgroup == "bare", token.group()
        if not is_bare or "\\" in label:
            label = _label(token, self.text)
        if is_bare:
            if ends_in_comma(label):
                form = other_form(self.text) or "a list with commas; write (f x y), or the label in quotes"
                raise ParseError(f"this looks like {form}", self.text, token.start(), "brackets")
        elif token["rest"]:
            what = f"{shorten(label)} has children and a value; only a leaf stands for a number"
            raise ParseError(what, self.text, token.start(), "a value only at a leaf")
        return label


def _tokens(text: str, escapes: bool = True) -> Iterable[re.Match[str]]:
    word = _ESCAPED_WORD if escapes and "\\" in text else _WORD
    return word.finditer(text) if '"' not in text else _tokens_with_quotes(text, word)


def _tokens_with_quotes(text: str, word: re.Pattern[str]) -> Iterator[re.Match[str]]:
    position, end = 0, len(text)
    while position < end:
        token = word.match(text, position) if text[position] != '"' else _quoted(text, position)
        assert token is not None
        yield token
        position = token.end()


def _quoted(text: str, position: int) -> re.Match[str] | None:
    """Return the quoted label at a quote, or the quote alone."""
    token, lone = _QUOTED.match(text, position), _LONE_QUOTE.match(text, position)
    if token is None:
        return lone or _UNCLOSED.match(text, position)
    is_closed = not token["rest"] or VALUE_SUFFIX.match(token["rest"])
    return lone if lone and not (is_closed and is_label(token["quoted"][1:-1])) else token


def _label(token: re.Match[str], text: str) -> str:
    sort = token.lastgroup
    if sort == "bare":
        label = token.group()
        return label if "\\" not in label or token.re is not _ESCAPED_WORD else _ESCAPED_BRACKET.sub(r"\1", label)
    if sort == "unclosed":
        raise ParseError("a quoted label is not closed", text, token.start(), "a closing '\"'")
    quoted, rest = token["quoted"], token["rest"]
    if rest and not VALUE_SUFFIX.match(rest):
        expected = "a space, a bracket or '=number'"
        raise ParseError(f"{shorten(rest)} after a quoted label", text, token.start("rest"), expected)
    if not is_label(quoted[1:-1]):
        problem = "a quoted label whose brackets do not match, or with a space at its end"
        raise ParseError(problem, text, token.start(), r"\u0028 and \u0029 for its brackets")
    try:
        return str(json.loads(quoted, strict=False))
    except json.JSONDecodeError as error:
        expected = 'an escape of JSON, such as \\" or \\n'
        raise ParseError("a wrong escape in a quoted label", text, token.start() + error.pos, expected) from error


def _is_in_penn_bracket(text: str) -> bool:
    """Return whether a text is one labelled tree in a bracket of its own, as in ``( (S (NP ...)) )``."""
    inside = text.strip()[1:-1]
    try:
        return _LABELLED.match(inside) is not None and bool(parse_brackets(inside).children)
    except ParseError:
        return False


def _check_single(label: str, text: str) -> None:
    """Refuse the label of a tree of one node whose text is in another form."""
    stripped = text.strip()
    if stripped[0] == '"' or stripped[:2] == '("':
        return
    form = other_form(stripped) or other_form(label)
    if form is not None:
        raise ParseError(f"this looks like {form}", text, 0, "brackets; a label that looks so needs double quotes")


def _check_commas(text: str) -> None:
    """Refuse commas beside brackets, as in ``A,(B,C)``, that are not within quotes."""
    before: re.Match[str] | None = None
    for token in _tokens(text):
        word = token.group()
        if before is not None and "bare" in (token.lastgroup, before.lastgroup):
            is_before = token.lastgroup == "open" and ends_in_comma(before.group())
            if is_before or (before.lastgroup == "close" and word[0] == ","):
                form = other_form(text) or "a list with commas; write spaces between brackets and labels"
                raise ParseError(f"this looks like {form}", text, token.start(), "brackets")
        before = token


def has_escapes(text: str) -> bool:
    """Return whether words of a text are not labels as they stand: quoted labels, and brackets after a backslash."""
    if "\\(" in text or "\\)" in text:
        return True
    return '"' in text and any(token.lastgroup not in ("space", "open", "close", "bare") for token in _tokens(text))
