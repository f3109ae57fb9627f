"""Trees as bracketed text, ``(label child child)``: what ``str(tree)`` prints and what reads back as the same tree."""

from __future__ import annotations

import json
import re
from typing import Literal

from treemem.checked_options import checked_choice
from treemem.errors import GraphError, ParseError
from treemem.trees.source_text import decode_source, shorten
from treemem.trees.tree import VALUE_SUFFIX, Tree, format_brackets

__all__ = ["CONSTITUENT", "format_brackets", "parse_brackets"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+)
      | (?P<open>\()
      | (?P<close>\))
      | (?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*")(?P<rest>[^ \t\r\n\f\v()]*)
      | (?P<unclosed>")
      | (?P<bare>[^ \t\r\n\f\v()]+)""",
    re.VERBOSE | re.DOTALL,
)
CONSTITUENT = "X"  # the label of inner nodes that the text gives none


def parse_brackets(text: str | bytes, *, first: Literal["label", "child"] = "label") -> Tree:
    """Read one tree from ``(label child child)``, or from ``(child child)``.

    A leaf is a bare label; ``label=2.5`` is a leaf with a value. A label with spaces, brackets or quotes, or one that
    looks like ``label=value``, stands in double quotes with the escapes of JSON.

    Args:
        text: the tree.
        first: what the first item of a bracket is: ``"label"``: the label of the node, as in the sentiment treebank and
            in ``str(tree)``, where ``(label)`` is the leaf ``label``; ``"child"``: a child like the others, as in
            logical inference, of a node that has the label ``X``.

    Raises:
        ParseError: the text is not one bracketed tree.
        RecipeError: another ``first``.

    Example:
        >>> parse_brackets("(max 3 (neg 4) 1)").children[1].label
        'neg'
        >>> str(parse_brackets("( a ( and b ) )", first="child"))
        '(X a (X and b))'
    """
    checked_choice("first", first, ("label", "child"))
    text = decode_source(text)
    open_nodes: list[tuple[str, float | None, int, list[Tree]]] = []
    tree: Tree | None = None
    expects_label = False
    for token in _TOKEN.finditer(text):
        sort, begin = token.lastgroup, token.start()
        if sort == "space":
            continue
        if tree is not None and not open_nodes:
            raise ParseError(f"{shorten(token.group())} after the end of the tree", text, begin, "the end of the text")
        if sort == "open":
            if expects_label:
                raise ParseError("a node without a label", text, begin, "a label after '('")
            expects_label = first == "label"
            if first == "child":
                open_nodes.append((CONSTITUENT, None, begin, []))
            continue
        if sort == "close":
            if expects_label or not open_nodes:
                expected = "a label after '('" if expects_label else "a tree"
                raise ParseError("')' closes no node", text, begin, expected)
            label, value, opened, children = open_nodes.pop()
            if first == "child" and not children:
                raise ParseError("a bracket without a child", text, begin, "a label or '('")
            tree = _build(label, children, value, text, opened)
        else:
            label, value = _read_label(token, text)
            if expects_label:
                expects_label = False
                open_nodes.append((label, value, begin, []))
                continue
            tree = _build(label, [], value, text, begin)
        if open_nodes:
            open_nodes[-1][3].append(tree)
    if expects_label:
        raise ParseError("the text ends within a node", text, len(text), "a label after '('")
    if open_nodes:
        label, _, opened, _ = open_nodes[-1]
        what = f"the node {shorten(label)}" if first == "label" else f"the bracket of column {opened + 1}"
        raise ParseError(f"{what} is not closed", text, len(text), "a child or ')'")
    if tree is None:
        raise ParseError("the text holds no tree", text, len(text), "a label or '('")
    return tree


def _read_label(token: re.Match[str], text: str) -> tuple[str, float | None]:
    begin = token.start()
    if token["unclosed"]:
        raise ParseError("a quoted label is not closed", text, begin, "a closing '\"'")
    if token["quoted"] is None:
        label, tail = token["bare"], ""
        if "=" in label and (found := VALUE_SUFFIX.search(label)) and found.start() > 0:
            label, tail = label[: found.start()], found.group()
    else:
        tail = token["rest"]
        if tail and not VALUE_SUFFIX.match(tail):
            raise ParseError(
                f"{shorten(tail)} after a quoted label", text, token.start("rest"), "a space, a bracket or '=number'"
            )
        try:
            label = json.loads(token["quoted"], strict=False)
        except json.JSONDecodeError as error:
            raise ParseError(
                "a wrong escape in a quoted label", text, begin + error.pos, 'an escape of JSON, such as \\" or \\n'
            ) from error
    return label, float(tail[1:]) if tail else None


def _build(label: str, children: list[Tree], value: float | None, text: str, offset: int) -> Tree:
    try:
        return Tree(label, children, value)
    except GraphError as error:
        raise ParseError(
            str(error), text, offset, "a finite value, and only at a leaf; or the label in quotes"
        ) from error
