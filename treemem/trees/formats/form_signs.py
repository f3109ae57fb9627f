"""Signs that a text is in another form than brackets, found without reading it."""

from __future__ import annotations

import ast
import json
import re

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORD = r"[^\W_][\w.]*"
_INFIX = re.compile(rf"-?{_WORD}(?:(?:[-/^+]|\*\*?|[<>=]=?)[-+]?{_WORD})+")
_WEAK = re.compile(rf"-?{_WORD}(?:(?:[-/^+]|\*\*?|[<>=]=?)[-+]?{_WORD})+|.*[\[\]{{}}<>\\,;|].*")
_MARKUP = re.compile(r"<\?xml\b.*|<(?!/)[^<>]+>.*</[^<>]+>|<\w[^<>]*/>", re.DOTALL)
_LATEX = re.compile(r"\\[A-Za-z]+\s*[{\[]|[_^]\{|\\[A-Za-z]+[_^]|\A\$.+\$\Z", re.DOTALL)
_NESTED = re.compile(r"\[.*\[.*\]|\{.*\{.*\}", re.DOTALL)
_CALL = re.compile(r"[^\W\d]\w*\(.*\)", re.DOTALL)
_LISTOPS = re.compile(r"[\s(]*\[(?:MIN|MAX|MED|FIRST|LAST|SM|PM|FLSUM)\s")
_PREORDER = re.compile(r"(?:\w+\s+)+(?:Symbol|Integer|Rational|Float|Number):\S+(?:\s|\Z)")
_COMMAS = re.compile(r"\(\s*[^\s()\"]*[^\s(),\"],[\s(]|[^\s(),\"],\(|\),[^\s)]")
_JOINED = re.compile(r"[\s(]+[^\s()\"]+,[^\s()\"]+[\s)]+")
_LONGEST_LITERAL = 100_000

_UNREAD = "treemem does not read it; write brackets such as (f x y), or nested lists"
INFIX = "an expression in infix"


def form_by_signs(text: str) -> str | None:
    """Return which form a text is in instead of brackets, and what reads it, by its signs; None without a sign.

    ``INFIX`` stands for operands with operators between them, which may be an expression or an equation.
    """
    text = text.strip()
    first, last = text[:1], text[-1:]
    if first in "[{" and last in "]}" and text:
        if (kind := _literal(text)) is not None:
            return kind
        if _LISTOPS.match(text):
            return 'ListOps; parse_listops(text) reads it, and text="listops" in a table'
        if _NESTED.fullmatch(text):
            return f"a tree in {first}{last}; {_UNREAD}"
    if first == "<" and _MARKUP.fullmatch(text):
        return f"XML; {_UNREAD}"
    if _LATEX.search(text):
        return "LaTeX; sympy.parsing.latex.parse_latex(text) makes an expression of it, which as_tree reads"
    if first == "(" and last == ";":
        return f"Newick; {_UNREAD}"
    if first == "(" and "," in text:
        if (kind := _python_literal(text)) is not None:
            return kind
        if _COMMAS.search(text) or _JOINED.fullmatch(text):
            return f"a list with commas; {_UNREAD}"
    if _is_infix(text) or _CALL.fullmatch(text):
        return INFIX
    if _LISTOPS.match(text):
        return 'ListOps; parse_listops(text) reads it, and text="listops" in a table'
    if _PREORDER.match(text):
        return 'labels in preorder; parse_preorder(text) reads it, and text="preorder" in a table'
    return None


def may_be_other_form(word: str) -> bool:
    """Return whether a text of one word may be in another form, if all texts of its column are words."""
    return _WEAK.fullmatch(word) is not None and _NUMBER.fullmatch(word) is None


def _is_infix(text: str) -> bool:
    return any(sign in text for sign in "+*^") and bool(_INFIX.fullmatch(text)) and not _NUMBER.fullmatch(text)


def _literal(text: str) -> str | None:
    try:
        json.loads(text)
    except RecursionError:
        pass
    except ValueError:
        return _python_literal(text)
    return 'JSON; as_tree(json.loads(text)) reads it, and text="json" in a table'


def _python_literal(text: str) -> str | None:
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return "a Python literal; as_tree(ast.literal_eval(text)) reads it"
