"""The errors that treemem raises for a user's mistake: what was wrong, where, and what would be right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

_EXCERPT_BEFORE, _EXCERPT_AFTER = 40, 30
_LONGEST_MESSAGE = 2000


class TreememError(Exception):
    """Base of every error that treemem raises on purpose.

    A message has at most 2,000 characters, whatever a user's file holds; a longer one is cut in the middle.
    """

    def __str__(self) -> str:
        return shortened(super().__str__(), _LONGEST_MESSAGE)


class _InText(TreememError, ValueError):
    """An error in a text, of which the place is known; see :class:`ParseError`."""

    line: Any
    column: Any
    expected = ""

    def _set(self, problem: str, text: str, offset: int, line: int | None, source: str, *, is_known: bool) -> None:
        self.problem, self.text, self.offset, self.source = problem, text, offset, source
        text_line, self.column = line_and_column(text, offset) if is_known else (None, None)
        self.line = text_line if line is None else line
        self._place = _place(source, line, text_line, self.column, text)

    def __str__(self) -> str:
        message = f"{self._place}: {self.problem}" if self._place else self.problem
        if self.expected:
            message += f"; expected {self.expected}"
        message = shortened(message, _LONGEST_MESSAGE)
        excerpt = excerpt_around(self.text, self.offset)
        return f"{message}\n{excerpt}" if excerpt else message


class ParseError(_InText):
    """A text that is no tree of the expected sort.

    Args:
        problem: what was wrong, as a clause without a full stop.
        text: the whole text that was being parsed.
        offset: 0-based character offset of the problem within ``text``.
        expected: what would have been right there.
        line: 1-based line of a file, or number in a list, where the text stands; counted within ``text`` by default.
        source: name of the file that the text came from.

    Attributes:
        line, column: where the problem is; both count from 1. ``line`` is the line of the file, or the text's place in
            the list; without either, a line of the text. ``column`` counts in the line of the text. A text that is one
            field of a line is counted without the quotes and escapes of the line. A line that cannot be split into
            fields is itself the text. The message shows what ``column`` counts in.
        expected: what would have been right.
    """

    def __init__(
        self,
        problem: str,
        text: str = "",
        offset: int = 0,
        expected: str = "",
        line: int | None = None,
        source: str = "",
    ) -> None:
        self.expected = expected
        self._set(problem, text, offset, line, source, is_known=True)
        super().__init__(problem, text, offset, expected, line, source)

    def at(self, line: int, source: str = "") -> ParseError:
        """The same error, told as one of line ``line`` of the file ``source``."""
        return ParseError(self.problem, self.text, self.offset, self.expected, line, source)


class VocabularyError(_InText):
    """A label, or a label with an arity, that the vocabulary does not know.

    Args:
        problem: what was wrong, as a clause without a full stop.
        text, offset, line, source: where, as for :class:`ParseError`; each may be unknown.

    Attributes:
        line, column: where the problem is, from 1; None where that is not known.
    """

    def __init__(
        self, problem: str, text: str = "", offset: int = 0, line: int | None = None, source: str = ""
    ) -> None:
        self._set(problem, text, offset, line, source, is_known=bool(text))
        super().__init__(problem, text, offset, line, source)

    def at(self, line: int, source: str = "") -> VocabularyError:
        """The same error, told as one of line ``line`` of the file ``source``."""
        return VocabularyError(self.problem, self.text, self.offset, line, source)


class GraphError(TreememError, ValueError):
    """A graph or tree of the wrong form: a cycle, two parents, a missing child, an arity without parameters."""


class ChildOrderWarning(UserWarning):
    """A graph without the edge field ``position``, for a network to which the order of children matters."""


class CellError(TreememError, ValueError):
    """A cell whose states are not what the cell protocol asks for."""


class CheckpointError(TreememError):
    """A checkpoint that is torn, foreign or does not fit the model."""


class OutOfMemoryError(TreememError, MemoryError, RuntimeError):
    """Not enough memory for an operation in C++; torch raises a RuntimeError for its own operations."""


class RecipeError(TreememError, ValueError):
    """A recipe or option that is unknown, ill-typed or contradicts another."""


def in_row(row: object, error: TreememError) -> TreememError:
    """The same error, told as one of a row of a table in memory."""
    if isinstance(error, ParseError):
        return ParseError(error.problem, error.text, error.offset, error.expected, source=f"row {row}")
    if isinstance(error, VocabularyError):
        return VocabularyError(error.problem, error.text, error.offset, source=f"row {row}")
    return type(error)(f"row {row}: {error}")


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Where the character at ``offset`` is in ``text``; both count from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _place(source: str, line: int | None, text_line: int | None, column: int | None, text: str) -> str:
    """Where a problem is, as far as that is known; in a text of several lines that stands in a line, its own too."""
    parts = [source] if source else []
    if line is not None:
        parts.append(f"line {line}")
        if "\n" in text:
            parts.append(f"line {text_line} of the text")
    elif text_line is not None and (not source or "\n" in text):
        parts.append(f"line {text_line}")
    if column is not None and (text or (line is None and not source)):
        parts.append(f"column {column}")
    return ", ".join(parts)


def excerpt_around(text: str, offset: int) -> str:
    """The line around ``offset``, cut to a screen's width, with a caret under the character at ``offset``."""
    line_begin = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    begin = max(line_begin, offset - _EXCERPT_BEFORE)
    end = min(len(text) if line_end < 0 else line_end, offset + _EXCERPT_AFTER)
    shown = "".join(character if character.isprintable() else "?" for character in text[begin:end])
    return f"  {shown}\n  {' ' * (offset - begin)}^" if shown else ""


def shortened(text: str, most: int = 200) -> str:
    """Return ``text``, cut in the middle if it has more than ``most`` characters."""
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def quoted(names: Iterable[object], most: int = 5) -> str:
    """The first names, in quotes: ``'a', 'b', ...``."""
    shown = [repr(shortened(str(name), 100)) for name in names]
    return ", ".join(shown[:most] + ["..."] * (len(shown) > most))


def shown(value: object, longest: int = 100) -> str:
    """Return the repr of data that a message shows, cut; its type, if it is too deep or a number too long for one."""
    try:
        return repr(value)[:longest]
    except (RecursionError, ValueError):  # ValueError: an integer of more than 4,300 digits
        return f"{type(value).__name__} data"


def near_names(name: str, known: Iterable[str]) -> str:
    """A clause that names the known names nearest to ``name``, or nothing where none is near."""
    candidates = list(known)
    lowered = {candidate.lower(): candidate for candidate in candidates}
    near = [lowered_name for lowered_name in lowered if lowered_name.startswith(f"{name.lower()}_")]
    near = near or difflib.get_close_matches(name[:200].lower(), lowered, n=3, cutoff=0.65)
    return f"; did you mean {' or '.join(lowered[candidate] for candidate in near)}?" if near else ""


def for_commands(error: Exception) -> str:
    """Return the message of an error; parameters of Python functions that it advises become options of a command."""
    return _PARAMETER.sub(_as_option, str(error))


_PARAMETER = re.compile(r"(?<![\w.])(overwrite|resume)=True\b|\b(processes)=1\b")


def _as_option(parameter: re.Match[str]) -> str:
    return f"--{parameter[1]}" if parameter[1] else f"--{parameter[2]} 1"
