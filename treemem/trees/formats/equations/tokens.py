"""The tokens of equation text: numbers, names and operators of ASCII, and everything else as what it is: a mistake."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from treemem.errors import ParseError
from treemem.trees.formats.source_text import shorten

LONGEST_TEXT = 2_000_000
"""Characters that one equation may have; a longer text is refused before anything is built from it."""

_TOKEN = re.compile(
    r"""(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
      | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
      | (?P<operator>\*\*|==|[-+*/^(),=])
      | (?P<space>[ \t\r\n\f\v\u00a0]+)
      | (?P<strange>.)""",
    re.VERBOSE | re.DOTALL,
)
_SAME_OPERATOR = {"**": "^", "==": "="}
_PIECE = re.compile(
    r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[A-Za-z_][A-Za-z_0-9]*|\*\*|==|[^ \t\r\n\f\v\u00a0]"
)
_LONGEST_KNOWN, _MOST_KNOWN = 16, 1 << 16
_WRITTEN_INSTEAD = {
    **dict.fromkeys("−–—‐‑", "'-'"),
    **dict.fromkeys("×·⋅∙∗•", "'*'"),
    **dict.fromkeys("÷∕⁄", "'/'"),
    **dict.fromkeys("[{", "'('"),
    **dict.fromkeys("]}", "')'"),
    **{superscript: f"'^{digit}'" for digit, superscript in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{fraction: f"'({digits})'" for fraction, digits in zip("½⅖", ("1/2", "2/5"), strict=True)},
    "√": "'sqrt(...)'",
    "π": "'pi'",
    "∞": "'oo'",
    "≡": "'='",
}


class Token(NamedTuple):
    """One piece of the text.

    Attributes:
        sort: ``"number"``, ``"name"``, ``"strange"``, ``"end"`` or an operator: one of ``+ - * / ^ ( ) , =``.
        text: as written.
        offset: 0-based, into the whole text.
    """

    sort: str
    text: str
    offset: int


def read_tokens(text: str) -> list[Token]:
    """The tokens of ``text``, with one of sort ``"end"`` last.

    A character that no equation has becomes a ``"strange"`` token, so that whoever reads the tokens in order reports
    the first mistake of the text first.

    Raises:
        ParseError: a text longer than ``LONGEST_TEXT``.
    """
    _check_length(text)
    tokens = []
    for match in _TOKEN.finditer(text):
        sort = match.lastgroup or ""
        if sort != "space":
            piece = match.group()
            if sort == "operator":
                sort = _SAME_OPERATOR.get(piece, piece)
            tokens.append(Token(sort, piece, match.start()))
    tokens.append(Token("end", "", len(text.rstrip("\r\n"))))
    return tokens


class _Sorts(dict[str, str]):
    """The sort of each piece of text, found out when it is first asked for."""

    def __missing__(self, piece: str) -> str:
        match = _TOKEN.match(piece)
        sort = (match and match.lastgroup) or "strange"
        if sort == "operator":
            sort = _SAME_OPERATOR.get(piece, piece)
        if len(piece) <= _LONGEST_KNOWN and len(self) < _MOST_KNOWN:
            self[piece] = sort
        return sort


_SORTS = _Sorts()


def split_tokens(text: str) -> tuple[list[str], list[str]]:
    """The sorts and the texts of the tokens that :func:`read_tokens` gives, without their offsets: much faster.

    Raises:
        ParseError: a text longer than ``LONGEST_TEXT``.
    """
    _check_length(text)
    pieces = _PIECE.findall(text)
    sorts = [_SORTS[piece] for piece in pieces]
    sorts.append("end")
    pieces.append("")
    return sorts, pieces


def _check_length(text: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise ParseError(
            f"the text has {len(text)} characters", text, LONGEST_TEXT, f"at most {LONGEST_TEXT} in one equation"
        )


def describe_token(token: Token) -> str:
    """What ``token`` is, for an error message."""
    if token.sort == "end":
        return "end of the text"
    if token.sort in ("number", "name"):
        return f"{token.sort} {shorten(token.text)}"
    return f"{token.text!r}"


def describe_strange_character(character: str) -> tuple[str, str | None]:
    """The problem with a character that no equation has, and what to write instead where that is clear."""
    code_point = f"U+{ord(character):04X}"
    shown = f"{character!r} ({code_point})" if character.isprintable() else code_point
    problem = f"an equation has no character {shown}"
    if character in _WRITTEN_INSTEAD or character.isascii():
        return problem, _WRITTEN_INSTEAD.get(character)
    digit = unicodedata.digit(character, None)
    if digit is not None:
        return problem, f"'{digit}'"
    plain = unicodedata.normalize("NFKC", character)
    if plain.isascii() and plain.isprintable() and not plain.isspace():
        return problem, f"{plain!r}"
    return problem, "a name of the letters a to z, digits and '_'" if character.isalpha() else None
