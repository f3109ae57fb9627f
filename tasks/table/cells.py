"""The cells of a table: missing values, numbers, truth values, and classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from treemem.errors import quoted, shown
from treemem.trees.formats.record_reader import is_missing

ClassName = str | bool | int | float
MISSING_WORDS = frozenset(
    ("N/A", "n/a", "#N/A", "<NA>", "NA", "NULL", "null", "NaN", "nan", "None")  # pandas reads these as missing
)
MISSING_MARKS = MISSING_WORDS | {"?", "-", "--", ".", "\u2013", "\u2014"}
"""Texts that stand for a missing value."""
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,999})(\.0+)?")  # Python refuses a text of some thousand digits
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_TRUTH = {"true": True, "false": False}
_SPREADSHEET_ERROR = re.compile(r"#[A-Z0-9/]+[!?]")
_LOWER_MARKS = frozenset(mark.lower() for mark in MISSING_MARKS)


def is_mark(cell: Any, *, among_numbers: bool = False) -> bool:
    """Return whether a cell is a text that stands for a missing value, among numbers in any case of its letters."""
    return isinstance(cell, str) and (cell.lower() in _LOWER_MARKS if among_numbers else cell in MISSING_MARKS)


def typed_column(cells: list[Any], is_plain_text: bool) -> list[Any]:
    """Return a column with its truth values and numbers; marks of missing values among these are None.

    Args:
        cells: of the column.
        is_plain_text: whether all cells are texts, because the file has no other type.
    """
    known = [cell for cell in cells if cell is not None and not is_mark(cell, among_numbers=True)]
    if known and all(_truth(cell) is not None for cell in known):
        return [_truth(cell) for cell in cells]
    if not known or not all(_is_number(cell) for cell in known):
        return cells
    cells = [None if is_mark(cell, among_numbers=True) else cell for cell in cells]
    if is_plain_text and all(_WHOLE_NUMBER.fullmatch(cell) for cell in known):
        return [None if cell is None else int(cell.partition(".")[0]) for cell in cells]
    return cells


def _truth(cell: Any) -> bool | None:
    return _TRUTH.get(str(cell).lower()) if isinstance(cell, (str, bool, np.bool_)) else None


def _is_number(cell: Any) -> bool:
    return bool(_NUMBER.fullmatch(cell)) if isinstance(cell, str) else isinstance(cell, (int, float, np.number))


def classes_of(values: Iterable[Any]) -> tuple[ClassName, ...]:
    """Return the distinct classes among values, sorted: numbers if all values are numbers, else texts."""
    plain = [_plain_class(value) for value in values if value is not None]
    is_truth = [isinstance(value, bool) for value in plain]
    if all(is_truth) or not (any(is_truth) or any(isinstance(value, str) for value in plain)):
        return tuple(sorted(set(plain)))
    return tuple(sorted(set(map(str, plain))))


def doubtful_class(classes: Iterable[ClassName], marks: frozenset[str] = MISSING_MARKS) -> tuple[ClassName, str] | None:
    """Return a class that is probably none, and why: a mark of a missing value, or another spelling of a number.

    Args:
        classes: the classes that a table has.
        marks: of missing values. ``-`` is a class beside ``+``.
    """
    names = set(classes)
    for mark in sorted(map(str, names & marks)):
        if mark != "-" or "+" not in names:
            return mark, "stands for a missing value; leave the cell empty"
    errors = sorted(name for name in names if isinstance(name, str) and _SPREADSHEET_ERROR.fullmatch(name))
    if errors:
        return errors[0], "is an error of a spreadsheet; leave the cell empty"
    numbers: dict[Decimal, ClassName] = {}
    for name in sorted(names, key=str):
        if isinstance(name, bool) or not _is_number(name):
            continue
        other = numbers.setdefault(Decimal(str(name)), name)
        if other != name:
            return name, f"and {other!r} are one number; write them alike"
    truths = sorted(str(name) for name in names if str(name).lower() in _TRUTH) if numbers else []
    return (truths[0], "is a truth value among numbers; write them alike") if truths else None


def class_numbers(
    classes: Sequence[ClassName], values: Iterable[Any], refuse: Callable[[int, str], object]
) -> list[int]:
    """Return the number of the class of each value, -1 for None, the mark of a missing value, and what is refused.

    Args:
        classes: their names, in order.
        values: of a column.
        refuse: called with the place and the problem of a value that is no class.
    """
    number = {class_key(name): place for place, name in enumerate(classes)}
    numbers = []
    for row, value in enumerate(values):
        problem = None if value is None else no_class(value)
        known = -1 if value is None or problem is not None else number.get(class_key(value))
        if known is None and not is_mark(value):
            problem = f"no class {shown(value)}; there are {quoted(number)}"
        if problem is not None:
            refuse(row, problem)
        numbers.append(-1 if known is None else known)
    return numbers


def no_class(value: Any) -> str | None:
    """Return why a list or a dictionary is no class: the texts of two different ones may be equal. Else None."""
    if not isinstance(value, (list, tuple, dict, set, bytes, np.ndarray)):
        return None
    return (
        f"a class is a text, a number or true or false, not {shown(value)}; a list of the classes of the nodes is for "
        'kind="nodes"'
    )


def letters_of(name: ClassName) -> str:
    """Return what a reader sees of a name: without case, accents composed, without characters of no width."""
    shown = unicodedata.normalize("NFKC", str(name)).casefold()
    return "".join(character for character in shown if unicodedata.category(character) != "Cf")


def class_key(value: Any) -> str:
    """Return what names a class, whether a cell holds it as a text, an int, a float or a truth value."""
    text = str(_plain_class(value))
    return text.lower() if text.lower() in _TRUTH else text


def _plain_class(value: Any) -> ClassName:
    """Return a value as a text, a truth value or a number; a whole number as an int."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (bool, int, float)) else str(value)


def plain_cell(cell: Any) -> Any:
    """Return a cell, a text without spaces around it, and None for a missing value."""
    cell = cell.strip() if isinstance(cell, str) else cell
    return None if is_missing(cell) or (isinstance(cell, str) and not cell) else cell
