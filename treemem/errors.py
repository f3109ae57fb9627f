"""The errors that treemem raises for a user's mistake: what was wrong, where, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_EXCERPT_BEFORE, _EXCERPT_AFTER = 40, 30


class TreememError(Exception):
    """Base of every error that treemem raises on purpose."""


class ParseError(TreememError, ValueError):
    """A text that is no tree of the expected sort.

    Args:
        problem: what was wrong, as a clause without a full stop.
        text: the whole text that was being parsed.
        offset: 0-based character offset of the problem within ``text``.
        expected: what would have been right there.
        line: 1-based line, where the text is a line of a file; counted within ``text`` by default.
        source: name of the file that the text came from.

    Attributes:
        line, column: where the problem is; both count from 1.
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
        self.problem = problem
        self.text = text
        self.offset = offset
        self.expected = expected
        self.source = source
        self.line = line if line is not None else text.count("\n", 0, offset) + 1
        self.column = offset - (text.rfind("\n", 0, offset) + 1) + 1
        super().__init__(problem, text, offset, expected, line, source)

    def at(self, line: int, source: str = "") -> ParseError:
        """The same error, told as one of line ``line`` of the file ``source``."""
        return ParseError(self.problem, self.text, self.offset, self.expected, line, source)

    def __str__(self) -> str:
        place = f"{self.source}, line {self.line}" if self.source else f"line {self.line}"
        message = f"{place}, column {self.column}: {self.problem}"
        if self.expected:
            message += f"; expected {self.expected}"
        excerpt = excerpt_around(self.text, self.offset)
        return f"{message}\n{excerpt}" if excerpt else message


class VocabularyError(TreememError, ValueError):
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
        self.problem = problem
        self.text = text
        self.offset = offset
        self.source = source
        self.line = text.count("\n", 0, offset) + 1 if line is None and text else line
        self.column = offset - (text.rfind("\n", 0, offset) + 1) + 1 if text else None
        super().__init__(problem, text, offset, line, source)

    def at(self, line: int, source: str = "") -> VocabularyError:
        """The same error, told as one of line ``line`` of the file ``source``."""
        return VocabularyError(self.problem, self.text, self.offset, line, source)

    def __str__(self) -> str:
        places = [
            self.source,
            "" if self.line is None else f"line {self.line}",
            "" if self.column is None else f"column {self.column}",
        ]
        place = ", ".join(place for place in places if place)
        message = f"{place}: {self.problem}" if place else self.problem
        excerpt = excerpt_around(self.text, self.offset)
        return f"{message}\n{excerpt}" if excerpt else message


class GraphError(TreememError, ValueError):
    """A graph or tree of the wrong form: a cycle, two parents, a missing child, an arity without parameters."""


class CellError(TreememError, ValueError):
    """A cell whose states are not what the cell protocol asks for."""


class CheckpointError(TreememError):
    """A checkpoint that is torn, foreign or does not fit the model."""


class RecipeError(TreememError, ValueError):
    """A recipe or option that is unknown, ill-typed or contradicts another."""


def excerpt_around(text: str, offset: int) -> str:
    """The line around ``offset``, cut to a screen's width, with a caret under the character at ``offset``."""
    line_begin = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    begin = max(line_begin, offset - _EXCERPT_BEFORE)
    end = min(len(text) if line_end < 0 else line_end, offset + _EXCERPT_AFTER)
    shown = "".join(character if character.isprintable() else "?" for character in text[begin:end])
    return f"  {shown}\n  {' ' * (offset - begin)}^" if shown else ""


def near_names(name: str, known: Iterable[str]) -> str:
    """A clause that names the known names nearest to ``name``, or nothing where none is near."""
    candidates = list(known)
    lowered = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name[:200].lower(), lowered, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(lowered[candidate] for candidate in near)}?" if near else ""
