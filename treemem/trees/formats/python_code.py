"""Trees of Python code. The code is parsed, and never run."""

from __future__ import annotations

import ast
import warnings

from treemem.errors import ParseError
from treemem.trees.formats.as_tree import as_tree
from treemem.trees.tree import Tree

_TOO_DEEP, _FEWER_LEVELS = "the code is nested deeper than Python reads", "code of fewer levels"


def parse_python(text: str, number: str | None = None) -> Tree:
    """Read a module of Python, in the grammar of the Python that runs. See :func:`~treemem.trees.as_tree` for labels.

    Raises:
        ParseError: the text is not Python, or nested deeper than Python's own parser reads.

    Example:
        >>> str(parse_python("y = f(x) + 1"))
        '(Module (Assign y (value (Add (Call f x) 1))))'
    """
    expected = "Python code"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in texts
            module = ast.parse(text)
    except SyntaxError as error:
        line = text.split("\n")[: max((error.lineno or 1) - 1, 0)]
        offset = min(sum(map(len, line)) + len(line) + max((error.offset or 1) - 1, 0), len(text))
        if not error.msg.startswith("too many"):  # nested parentheses, or levels of indentation
            raise ParseError(f"this is not Python: {error.msg}", text, offset, expected) from error
        raise ParseError(_TOO_DEEP, text, offset, _FEWER_LEVELS) from RecursionError(error.msg)
    except (RecursionError, MemoryError) as error:
        raise ParseError(_TOO_DEEP, text, 0, _FEWER_LEVELS) from error
    except ValueError as error:  # a character NUL, a lone surrogate
        raise ParseError(f"this is not Python: {error}", text, 0, expected) from error
    return as_tree(module, number=number)
