"""Read pairs of formulas from files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, near_names
from treemem.records import Record, read_records
from treemem.tasks.logical_inference.generation.relations import RELATIONS, relations, truth_tables
from treemem.trees.forest import Forest
from treemem.trees.formats.bracketed_lines import forest_of_bracketed
from treemem.trees.formats.logic import AND, NOT, OR, LogicForm, parse_logic
from treemem.trees.formats.record_reader import SPLITS, number_text, split_of
from treemem.trees.formats.source_text import shorten
from treemem.trees.pairs import PairReader
from treemem.trees.tree import Tree

MOST_OPERATIONS = 12
"""Larger numbers of operations count as this one."""

_HEADER = ("n_ops", "label", "left", "right")
_NUMBERS = ("operations", "n_ops")  # likewise
_EXPECTED = "LABEL<TAB>LEFT<TAB>RIGHT, before which a number of operations may stand"
_ONE_SIDE = "3 columns, a number of operations, a label and one side; the right side is missing"
_RECORD_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_FILE_NAME = re.compile(
    rf"({'|'.join(SPLITS)})([0-9]+)?({'|'.join(map(re.escape, ('.tsv', '.txt', *_RECORD_FORMATS)))})?(\.gz)?\Z"
)


@dataclass(frozen=True, eq=False)
class LogicPairs:
    """Pairs of formulas with their relations.

    Attributes:
        forest: the formulas, two a pair, adjacent, in the form ``"binary"``.
        label: index into ``RELATIONS``, int64 ``[pairs]``; -1 if it is not known.
        operations: the larger of the two numbers of operators, int64 ``[pairs]``; 12 for 12 and more, as in the
            published files.
        split: of each pair, ``[pairs]``, empty if it has none; None if no pair has one. In a folder, the name of the
            file.
    """

    forest: Forest
    label: NDArray[np.int64]
    operations: NDArray[np.int64]
    split: NDArray[Any] | None = None  # of texts

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, chosen: NDArray[np.int64]) -> LogicPairs:
        """Return the pairs with these indices."""
        formulas = (2 * chosen[:, None] + np.arange(2)).ravel()
        split = None if self.split is None else self.split[chosen]
        return LogicPairs(self.forest[formulas], self.label[chosen], self.operations[chosen], split)


def read_logic(path: str | os.PathLike[str], *, format: str | None = None, labelled: bool = True) -> LogicPairs:
    """Read a file of pairs: ``LABEL<TAB>LEFT<TAB>RIGHT``, or the same after a number of operations.

    A first line ``n_ops label left right`` or ``label left right`` is a header. Blank lines are skipped. CSV, JSONL and
    Parquet have the fields ``label``, ``left`` and ``right`` (or ``lhs`` and ``rhs``), and may have ``operations`` (or
    ``n_ops``; the first that is not empty counts) and ``split``. A number of operations may be empty, and 12 may stand
    for more. Numbers and relations are checked against the formulas.

    Args:
        path: the file; a name that ends in ``.gz`` is unpacked.
        format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default, else text.
        labelled: every pair must have a label. If False, a line may be ``LEFT<TAB>RIGHT``, with label -1.

    Raises:
        ParseError: the first line with another number of columns, a wrong field, or a number or label that contradicts
            its formulas. Columns count in the field.
        RecipeError: there is no such file.
    """
    return _read(path, format, labelled, SPLITS)


def _read(path: str | os.PathLike[str], format: str | None, labelled: bool, splits: Sequence[str]) -> LogicPairs:
    """Read a file whose pairs are of ``splits``, or of no split."""
    source = os.fspath(path)
    rows: list[_Row] = []
    try:
        format = _format_of(source) if format is None else format
        for record in read_records(
            path, format=format, text_fields=_HEADER, one_of=LogicRecords.example_fields, skip_blank_lines=True
        ):
            fields = list(record.fields.values()) if format == "text" else _columns(record, source, labelled)
            if format == "text" and not rows and _is_header([field.strip() for field in fields]):
                continue
            if not labelled and len(fields) == 2:
                fields = ["", *fields]
            row = _checked_row(fields, record.line, source, labelled)
            try:
                split = split_of(record.fields)
            except ParseError as error:
                raise error.at(record.line, source) from error
            if split and split not in splits:
                wanted = f"pairs of {' and '.join(splits)} alone in a file of this name"
                raise ParseError(f"this pair is of the split {split}", expected=wanted, line=record.line, source=source)
            rows.append(row._replace(split=split))
    except ParseError:
        _pairs(rows, source)  # a line before this one may be wrong too
        raise
    return _pairs(rows, source)


def _format_of(source: str) -> str:
    suffix = Path(source.lower().removesuffix(".gz")).suffix
    return _RECORD_FORMATS.get(suffix, "text")


def _columns(record: Record, source: str, labelled: bool) -> list[str]:
    """Return the columns that a line of text with the same content would have."""
    fields = record.fields
    names = ("label", *LogicRecords.side_names(fields))
    columns = []
    for name in names:
        text = fields.get(name)
        if text is None and name == "label" and not labelled:
            text = ""
        if not isinstance(text, str):
            problem = f"no {name}" if text is None else f"the field {name!r} is {text!r}"
            raise ParseError(problem, expected=f"texts {', '.join(names)}", line=record.line, source=source)
        columns.append(text)
    number = next((text for name in _NUMBERS if (text := number_text(fields.get(name)))), None)
    if number is None:
        return columns
    if not number.isdecimal():
        problem = f"{shorten(number)} is no number of operations"
        raise ParseError(problem, number, 0, "a whole number, or an empty field", record.line, source)
    return [number, *columns]


def _is_header(parts: Sequence[str]) -> bool:
    names = tuple(part.lower() for part in parts)
    return names in (_HEADER[1:], _HEADER[2:], *((number, *_HEADER[1:]) for number in _NUMBERS))


def _lacks_right_side(parts: Sequence[str]) -> bool:
    return len(parts) == 3 and parts[0].isdecimal() and parts[1] in RELATIONS


@dataclass
class LogicRecords(PairReader):
    """Reads pairs of formulas from records, with or without labels.

    A text line is ``LEFT<TAB>RIGHT``, optionally after a label, or after a number of operations and a label. Records
    have the fields ``left`` and ``right``, or ``lhs`` and ``rhs``.

    Args:
        form: of the trees.
    """

    unit: ClassVar[str] = "formulas"
    text_fields: ClassVar[tuple[str, ...]] = _HEADER
    sides: ClassVar[tuple[tuple[str, str], ...]] = (("left", "right"), ("lhs", "rhs"))

    form: LogicForm = "binary"

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        return [part.lower() for part in parts] if _is_header(parts) else super().header_of(parts)

    def fields_of_line(self, parts: Sequence[str]) -> dict[str, str]:
        """Return the two sides, which are the last parts."""
        parts = [part.strip() for part in parts]
        expected = "LEFT<TAB>RIGHT, before which a number of operations and a label may stand"
        if _lacks_right_side(parts):
            raise ParseError(_ONE_SIDE, "\t".join(parts), 0, expected)
        if len(parts) < 2:
            raise ParseError("one part between tabs, and a pair has two formulas", "\t".join(parts), 0, expected)
        number, label = ["", "", *parts[:-2]][-2:]
        if label not in ("", *RELATIONS) or (number and not number.isdecimal()):
            before = "\t".join(parts[:-2])
            raise ParseError(f"{shorten(before)} before the two formulas", "\t".join(parts), 0, expected)
        return dict(zip(_HEADER[2:], parts[-2:], strict=True))

    def trees(self, texts: Sequence[str]) -> list[Tree]:
        return [parse_logic(text, form=self.form) for text in texts]


def read_logic_folder(folder: str | os.PathLike[str]) -> tuple[LogicPairs, NDArray[np.bool_]]:
    """Read the published files of a folder: ``train`` and ``test``, or ``train0``, ``train1``, ... and ``test0``, ...

    Files named ``validation`` or ``validation0``, ... are read too. Names may end in ``.tsv``, ``.txt``, ``.csv``,
    ``.jsonl`` or ``.parquet``, and then in ``.gz``. A split is either one file or one file for each number.

    Returns:
        The pairs with their ``split``, first training and last test pairs, by the numbers of their files; and the test
        pairs, bool ``[pairs]``.

    Raises:
        RecipeError: there is no such folder, no such files in it, or two with the same pairs.
        ParseError: as :func:`read_logic`, or a pair is of another split than its file.
    """
    folder = Path(folder)
    if not folder.is_dir():
        is_file = folder.exists()
        raise RecipeError(f"{folder} is a file; name its folder" if is_file else f"there is no folder {folder}")
    files = [(match, path) for path in folder.iterdir() if (match := _FILE_NAME.match(path.name))]
    files.sort(key=lambda file: (SPLITS.index(file[0][1]), int(file[0][2] or -1)))
    if not {match[1] for match, _ in files} >= {"train", "test"}:
        raise RecipeError(
            f"{folder} must hold train.tsv and test.tsv (or .csv, .jsonl, .parquet), or train0, train1, ... and test0, "
            f"test1, ..."
        )
    _check_once([match for match, _ in files], folder)
    parts = [_read(path, None, True, [match[1]]) for match, path in files]
    split = np.repeat([match[1] for match, _ in files], [len(part) for part in parts])
    return replace(joined(parts), split=split), split == "test"


def _check_once(files: Sequence[re.Match[str]], folder: Path) -> None:
    """Check that no pairs are read twice: training pairs could be among the validation pairs then."""
    for kind in SPLITS:
        matches = [match for match in files if match[1] == kind]
        numbers = [int(match[2] or -1) for match in matches]
        if len(set(numbers)) < len(numbers) or (-1 in numbers and len(numbers) > 1):
            raise RecipeError(
                f"{folder} holds {', '.join(sorted(match[0] for match in matches))}, which would be read one after the "
                f"other; keep the pairs of {kind} once: in one whole file such as {kind}.tsv, or in {kind}0, {kind}1, "
                "..., one file for each number"
            )


def joined(parts: Sequence[LogicPairs]) -> LogicPairs:
    """Return all pairs, without their splits."""
    return LogicPairs(
        Forest.concatenate(part.forest for part in parts),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.operations for part in parts]),
    )


def pair_operations(forest: Forest) -> NDArray[np.int64]:
    """Return the ``operations`` of pairs of formulas, int64 ``[pairs]``."""
    return np.minimum(_all_operations(forest), MOST_OPERATIONS)


def _all_operations(forest: Forest) -> NDArray[np.int64]:
    """Return the larger number of operators of each pair, int64 ``[pairs]``."""
    is_operator = np.array([label in (NOT, AND, OR) for label in forest.labels], bool)
    if not len(forest):
        return np.zeros(0, np.int64)
    of_formula = np.add.reduceat(is_operator[forest.label].astype(np.int64), forest.begin[:-1])
    return of_formula.reshape(-1, 2).max(1)


class _Row(NamedTuple):
    """The fields of a line."""

    line: int
    number: str | None
    label: str
    left: str
    right: str
    split: str = ""


def _checked_row(fields: Sequence[str], line: int, source: str, labelled: bool) -> _Row:
    """Return the fields of a line after all checks that do not need the formulas."""

    def wrong(problem: str, text: str, offset: int = 0, expected: str = _EXPECTED) -> ParseError:
        return ParseError(problem, text, offset, expected, line=line, source=source)

    if len(fields) < 3:
        raise wrong(f"{len(fields)} column{'s' * (len(fields) != 1)}, and a pair has 3", "\t".join(fields))
    if _lacks_right_side([field.strip() for field in fields]):
        raise wrong(_ONE_SIDE, "\t".join(fields))
    number = fields[0] if len(fields) == 4 and fields[0].strip() else None
    if number is not None and not number.strip().isdecimal():
        raise wrong(f"{shorten(number.strip())} is no number of operations", number, _first_character(number))
    label = fields[-3].strip()
    if label not in RELATIONS and (label or labelled):
        problem = f"{shorten(label)} is no relation" if label else "the label is missing"
        expected = f"one of {' '.join(RELATIONS)}{near_names(label, RELATIONS)}"
        raise wrong(problem, fields[-3], _first_character(fields[-3]), expected)
    return _Row(line, number, *fields[-3:])


def _first_character(field: str) -> int:
    return len(field) - len(field.lstrip())


def _pairs(rows: Sequence[_Row], source: str) -> LogicPairs:
    """Return the pairs of some lines.

    Raises:
        ParseError: the first line with a side that is not a formula, or whose number or label contradicts its formulas.
    """
    try:
        forest, tables = _formulas(rows, source)
    except ParseError as error:
        before = next(place for place, row in enumerate(rows) if row.line == error.line)
        _pairs(rows[:before], source)  # one of these may be the first wrong line
        _check_sides(rows[before : before + 1], source)  # and of this line the left side, where the right one is told
        raise
    place = {name: index for index, name in enumerate(RELATIONS)} | {"": -1}
    label = np.array([place[row.label.strip()] for row in rows], np.int64)
    operations, relation_of_pair = _all_operations(forest), relations(*tables.reshape(-1, 2).T)
    for row, number, is_so in zip(rows, operations.tolist(), relation_of_pair.tolist(), strict=True):
        _check_against_formulas(row, number, RELATIONS[is_so], source)
    splits = [row.split for row in rows]
    split = np.array(splits) if any(splits) else None
    return LogicPairs(forest, label, np.minimum(operations, MOST_OPERATIONS), split)


def _formulas(rows: Sequence[_Row], source: str) -> tuple[Forest, NDArray[np.uint64]]:
    """Return the sides as trees, and their truth tables."""
    lines = [row.line for row in rows for _ in range(2)]
    sides = [side for row in rows for side in (row.left, row.right)]
    forest = forest_of_bracketed(sides, source=source, lines=lines, parse=parse_logic)
    try:
        return forest, truth_tables(forest)
    except GraphError:
        _check_sides(rows, source)
        raise


def _check_sides(rows: Sequence[_Row], source: str) -> None:
    """Raise a ``ParseError`` for the first side that is not a formula."""
    for row in rows:
        for side in (row.left, row.right):
            try:
                parse_logic(side)
            except ParseError as error:
                raise error.at(row.line, source) from error


def _check_against_formulas(row: _Row, operations: int, relation: str, source: str) -> None:
    """Check the number of operations and the relation of a line, if it has them."""
    number, label = row.number, row.label
    if number is not None and number.strip() not in (str(operations), str(min(operations, MOST_OPERATIONS))):
        problem = f"{shorten(number.strip())} is said to be the number of operations, which is {operations}"
        raise ParseError(problem, number, _first_character(number), str(operations), row.line, source)
    if label.strip() not in ("", relation):
        problem = f"the label {label.strip()!r} contradicts the formulas, whose relation is {relation!r}"
        expected = f"{relation}, or other formulas"
        raise ParseError(problem, label, _first_character(label), expected, row.line, source)
