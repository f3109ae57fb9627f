"""What a parser is given: characters, or bytes that must be UTF-8."""

from __future__ import annotations

from treemem.errors import ParseError, line_and_column


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
    """Where ``offset`` is, for an error message that names a second place: a line only where the text has several.

    Lines count within the text, whatever line of a file it stands in.
    """
    line, column = line_and_column(text, offset)
    return f"line {line} of the text, column {column}" if "\n" in text else f"column {column}"
