"""Signs that a text is in another form than it is read in, found without reading it as a tree."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORD = r"[^\W_][\w.]*"
_INFIX = re.compile(rf"-?{_WORD}(?:(?:[-/^+]|\*\*?|[<>=]=?)[-+]?{_WORD})+")
_WEAK = re.compile(rf"-?{_WORD}(?:(?:[-/^+]|\*\*?|[<>=]=?)[-+]?{_WORD})+|.*[\[\]{{}}<>\\,;|].*")
_MARKUP = re.compile(r"<\?xml\b.*|<!DOCTYPE\b.*|<(?!/)[^<>]+>.*</[^<>]+>|<\w[^<>]*/>", re.DOTALL)
_CONTENT = re.compile(r"<(?:\w+:)?(?:math|apply|ci|cn|bind|csymbol)\b")
_LATEX = re.compile(r"\\[A-Za-z]+\s*[{\[]|[_^]\{|\\[A-Za-z]+[_^]|\A\$.+\$\Z", re.DOTALL)
_NESTED = re.compile(r"\[.*\[.*\]|\{.*\{.*\}", re.DOTALL)
_CALL = re.compile(r"[^\W\d]\w*\(.*\)", re.DOTALL)
_LISTOPS = re.compile(r"[\s(]*\[(?:MIN|MAX|MED|FIRST|LAST|SM|PM|FLSUM)\s")
_PREORDER = re.compile(r"(?:\w+\s+)+(?:Symbol|Integer|Rational|Float|Number):\S+(?:\s|\Z)")
_PREFIX = re.compile(
    r"(?:[0-9]+\|)?\s*(?:(?:add|sub|mul|div|pow[2-5]?|rac|inv|sqrt|exp|ln|abs|sign|derivative|[fgh]"
    r"|a?(?:sin|cos|tan|cot|sec|csc)h?)\s+)+(?:INT[+-]\s+[0-9]|(?:[xyztEI]|a[0-9]|pi|Y'{0,2})(?:\s|\Z))"
)
_COMMAS = re.compile(r"\(\s*[^\s()\"]*[^\s(),\"],[\s(]|[^\s(),\"],\(|\),[^\s)]")
_JOINED = re.compile(r"[\s(]+[^\s()\"]+,[^\s()\"]+[\s)]+")
_CONLLU = re.compile(r"(?:#[^\n]*\n)*[0-9]+(?:[-.][0-9]+)?\t[^\n\t]+(?:\t[^\n\t]*){8}\r?(?:\n|\Z)")
_PARENTS = re.compile(r"[^\n]+\n(?:-1|[0-9]+)(?:[ |](?:-1|[0-9]+))*\s*")
_SMTLIB = re.compile(
    r"(?:\s|;[^\n]*\n)*\(\s*(?:(?:set-\w+|declare-\S+|define-\S+|assert|check-sat)[\s)]|(?:let|forall|exists)\s*\(\s*\()"
)
_LISP = re.compile(r"(?:\s|;[^\n]*\n)*\(\s*(?:define|defun|defmacro|lambda|let\*?|setq|cond)\s*[\s(]")
_TREE_SITTER = re.compile(r"\(\w+ (?:\[[0-9]+, [0-9]+\] - |(?:.*[\s])?[a-z_]+: [(\"])", re.DOTALL)
_CODE = re.compile(r"^\s*(?:def |class |import |from |for |while |if |with |return\b|print\(|@)", re.MULTILINE)
_LONGEST_LITERAL = 100_000

_UNREAD = "treemem does not read it; write brackets such as (f x y), or nested lists"
INFIX = "an expression in infix"

TITLES = {
    "brackets": "brackets",
    "unlabelled": "brackets without labels",
    "penn": "the bracketed files of the Penn Treebank",
    "json": "JSON",
    "ast_json": "a syntax tree in JSON, as in py150 and js150",
    "estree": "JSON of ESTree",
    "tree_sitter_json": "JSON of tree-sitter",
    "tree_sitter": "s-expressions of tree-sitter",
    "smtlib": "SMT-LIB",
    "lisp": "Lisp",
    "python": "Python code",
    "xml": "XML",
    "mathml": "content MathML",
    "newick": "Newick",
    "conllu": "CoNLL-U",
    "parents": "words and parent pointers",
    "prefix": "prefix notation of SymbolicMathematics",
    "expression": "an expression in infix",
    "equation": "an equation in infix",
    "preorder": "labels in preorder",
    "listops": "ListOps",
}
"""What messages call a form of texts."""


def form_hint(*forms: str, excluded: str = "") -> str | None:
    """Return which forms a text may be in, and what reads it; None if only ``excluded`` is left, in which it is not."""
    forms = tuple(form for form in forms if form != excluded)
    if not forms:
        return None
    titles = " or ".join(TITLES[form] for form in forms)
    names = " or ".join(f'"{form}"' for form in forms)
    return f"{titles}; parse_text(text, {names}) reads it, and text={names} in a table"


def form_by_signs(text: str, excluded: str = "brackets") -> str | None:
    """Return which form a text is in instead of ``excluded``, and what reads it, by its signs; None without a sign.

    ``INFIX`` stands for operands with operators between them, which may be an expression or an equation.
    """
    text = text.strip()
    first, last = text[:1], text[-1:]
    if first in "[{" and last in "]}" and text:
        if (kind := _literal(text, excluded)) is not None:
            return kind
        if _LISTOPS.match(text):
            return form_hint("listops", excluded=excluded)
        if _NESTED.fullmatch(text):
            return f"a tree in {first}{last}; {_UNREAD}"
    if first == "<" and _MARKUP.fullmatch(text):
        return form_hint("xml", *["mathml"] * bool(_CONTENT.search(text)), excluded=excluded)
    if _CONLLU.match(text):
        return form_hint("conllu", excluded=excluded)
    if _PARENTS.fullmatch(text):
        return form_hint("parents", excluded=excluded)
    if _LATEX.search(text):
        return "LaTeX; sympy.parsing.latex.parse_latex(text) makes an expression of it, which as_tree reads"
    if last == ";" and first in ("(", "["):
        return form_hint("newick", excluded=excluded)
    if first in ("(", ";") and (forms := _s_expression_forms(text)):
        return form_hint(*forms, excluded=excluded)
    if first == "(" and "," in text:
        if (kind := _python_literal(text)) is not None:
            return kind
        if _COMMAS.search(text) or _JOINED.fullmatch(text):
            return f"a list with commas; {_UNREAD}"
    if _CODE.search(text) and is_python(text):
        return form_hint("python", excluded=excluded)
    if _is_infix(text) or _CALL.fullmatch(text):
        return INFIX
    if _LISTOPS.match(text):
        return form_hint("listops", excluded=excluded)
    if _PREORDER.match(text):
        return form_hint("preorder", excluded=excluded)
    if _PREFIX.match(text):
        return form_hint("prefix", excluded=excluded)
    return None


def may_be_other_form(word: str) -> bool:
    """Return whether a text of one word may be in another form, if all texts of its column are words."""
    return _WEAK.fullmatch(word) is not None and _NUMBER.fullmatch(word) is None


def json_forms(data: Any) -> Sequence[str]:
    """Return the forms of JSON that data may be in, the likeliest first."""
    if isinstance(data, list) and data and isinstance(data[0], dict) and "type" in data[0]:
        return ("ast_json",)
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return ("json",)
    children = data.get("children")
    below = children if isinstance(children, list) else []
    names = {*data}.union(*(child for child in below if isinstance(child, dict)))
    if names <= {"type", "value", "children"}:
        return ("ast_json", "json")
    if "children" in names or "text" in names:
        return ("tree_sitter_json",)
    return ("json",) if names <= {"type", "args"} else ("estree",)


def is_of_tree_sitter(text: str) -> bool:
    """Return whether a text in brackets has places or names of fields, as tree-sitter writes them."""
    return _TREE_SITTER.match(text.strip()) is not None


def _s_expression_forms(text: str) -> list[str]:
    signs = {"tree_sitter": _TREE_SITTER, "smtlib": _SMTLIB, "lisp": _LISP}
    return [form for form, sign in signs.items() if sign.match(text)]


def _is_infix(text: str) -> bool:
    return any(sign in text for sign in "+*^") and bool(_INFIX.fullmatch(text)) and not _NUMBER.fullmatch(text)


def _literal(text: str, excluded: str) -> str | None:
    try:
        data = json.loads(text)
    except RecursionError:
        return form_hint("json", excluded=excluded)
    except ValueError:
        return _python_literal(text)
    return form_hint(*json_forms(data), excluded=excluded)


def _python_literal(text: str) -> str | None:
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return "a Python literal; as_tree(ast.literal_eval(text)) reads it"


def is_python(text: str) -> bool:
    """Return whether a text, which is not too long for Python's parser, is Python code."""
    if len(text) > _LONGEST_LITERAL:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
