"""What a parser is given: characters, or bytes that must be UTF-8."""

from __future__ import annotations

from treemem.errors import ParseError


def decode_source(source: str | bytes) -> str:
    """The characters of ``source``.

    Raises:
        ParseError: ``source`` is neither text nor bytes, or bytes that are not UTF-8; the column counts the characters
            before the first wrong byte.
    """
    if isinstance(source, str):
        return source
    if not isinstance(source, bytes):
        raise ParseError(f"a text to parse must be str or bytes, not {type(source).__name__}")
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8")
        text = before + source[error.start :].decode("utf-8", errors="replace")
        raise ParseError(f"byte 0x{source[error.start]:02x} is not UTF-8", text, len(before), "UTF-8 text") from error


def shorten(text: str, longest: int = 40) -> str:
    """``text`` in quotes, cut to ``longest`` characters, for an error message."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}... ({len(text)} characters)"


def place(text: str, offset: int) -> str:
    """Line and column of ``offset``, for an error message that names a second place."""
    line_begin = text.rfind("\n", 0, offset) + 1
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - line_begin + 1}"
