"""Records out of files."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from treemem.errors import ParseError, RecipeError, TreememError, near_names, shortened
from treemem.records.source import DAMAGED, LONGEST_LINE, Line, cut_off, lines_of, open_source, read_json

FORMATS = ("text", "csv", "jsonl", "parquet")
PARQUET_ROWS = 8192
"""Rows of Parquet that are in memory at a time."""

_FORMAT_OF_SUFFIX = {
    **dict.fromkeys(("", ".txt", ".tsv"), "text"),
    ".csv": "csv",
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
}
_QUOTE_AFTER_SPACE = re.compile(r'(?:^|,)\s+"')
_LONGEST_CELL = 2**31 - 1
HeaderOf = Callable[[Sequence[str]], Sequence[str] | None]
_PARQUET = "a whole Parquet file"


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        line: the line it begins on (row, in Parquet), from 1; a CSV header counts as line 1.
        fields: its values by name; at most its ``id`` if ``error`` is set.
        error: why this record could not be read, else ``None``.
        by_place: whether its fields are parts of a text line without a header, named by their places.
    """

    line: int
    fields: dict[str, Any]
    error: ParseError | None = None
    by_place: bool = False


def read_records(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    text_fields: Sequence[str] = ("text",),
    header_of: HeaderOf | None = None,
    one_of: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    strict: bool = True,
    skip_blank_lines: bool = False,
) -> Iterator[Record]:
    """Read a file record by record; text formats are never held in memory as a whole.

    Blank lines of JSONL, of CSV and of a text file with a header are not records, but they count in line numbers. A
    blank line of another text file is a record without text, unless it is skipped.

    Args:
        source: a path, or ``"-"`` for standard input. A name that ends in ``.gz`` is unpacked.
        format: one of ``FORMATS``; told from the name by default (no suffix, or standard input: ``"text"``).
        text_fields: names of the tab-separated parts of a text line; the later ones may be missing.
        header_of: of a text file: given the parts of the first line that is not blank, without spaces around them,
            returns the names of the columns if they are a header, else None. Then ``text_fields`` name the parts.
        one_of: fields of which a CSV or Parquet table must have at least one column, if any are given.
        columns: the columns of Parquet to read, if they exist; all by default.
        strict: raise at the first record that cannot be read, rather than yield it with its ``error``.
        skip_blank_lines: of text, those of tabs alone too.

    Raises:
        RecipeError: the file does not exist, its format cannot be told, or it has no column of ``one_of``.
            It cannot be read, or its size changes meanwhile.
        ParseError: the file as a whole is damaged or cut off, or (with ``strict``) a record is bad; it names the file
            and the line. A file is cut off if its last line has no end and is no whole record: no JSON, fewer cells
            than the header, fewer parts than the line before it, nothing in its last cell, or half a character.
    """
    name = os.fspath(source)
    check = functools.partial(check_columns, name, one_of)
    readers: dict[str, Callable[[IO[bytes]], Iterator[Record]]] = {
        "text": functools.partial(_text_records, text_fields, header_of, skip_blank_lines),
        "csv": functools.partial(_csv_records, check),
        "jsonl": _jsonl_records,
        "parquet": functools.partial(_parquet_records, check, columns),
    }
    reader = readers[format_of(name, format)]
    with open_source(source) as stream:
        line = 0
        try:
            for record in reader(stream):
                line = record.line
                if record.error is not None:
                    error_here = record.error.at(line, name)
                    if strict:
                        raise error_here
                    record = record._replace(error=error_here)
                yield record
        except ParseError as error:
            if error.source:
                raise
            raise error.at(error.line, name) from error
        except DAMAGED as error:
            problem = f"the packed data are damaged after this line ({error})"
            raise ParseError(problem, line=max(line, 1), source=name) from error
        except OSError as error:
            raise RecipeError(f"cannot read {name}: {error.strerror or error}") from error


def format_of(name: str, format: str | None) -> str:
    """The format of a file: ``format`` if given, else by its name.

    Raises:
        RecipeError: the format does not exist, or the name does not tell it.
    """
    if format is not None:
        if format not in FORMATS:
            raise RecipeError(f"no format {format!r}; known are {', '.join(FORMATS)}{near_names(format, FORMATS)}")
        return format
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if suffix not in _FORMAT_OF_SUFFIX:
        known = ", ".join(suffix for suffix in _FORMAT_OF_SUFFIX if suffix)
        raise RecipeError(
            f"cannot tell the format of {name} from its name ({known}, each also with .gz); "
            "give it (--format, --output-format)"
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _text_records(
    names: Sequence[str], header_of: HeaderOf | None, skip_blank_lines: bool, stream: IO[bytes]
) -> Iterator[Record]:
    header: Sequence[str] | None = None
    is_first = True
    num_before = 0
    for number, text, error, is_ended in lines_of(stream):
        parts = text.split("\t")
        is_blank = error is None and not text.strip()
        if is_blank and (skip_blank_lines or (header is not None and len(parts) == 1)):
            continue
        if is_first and text.strip():
            is_first = False
            if error is None and header_of is not None:
                header = header_of([part.strip() for part in parts])
            if header is not None:
                if (wrong := _header_error(header)) is not None:
                    raise wrong.at(number)
                names, num_before = header, len(parts)
                continue
        if header is not None and len(parts) > len(header):
            parts = _without_blank_end(parts, len(header))
        if error is None and len(parts) > len(names):
            offset = sum(len(part) + 1 for part in parts[: len(names)]) - 1
            error = ParseError(f"{len(parts)} parts between tabs", text, offset, shortened("<TAB>".join(names)))
        if not is_ended and _seems_cut(parts, num_before):
            raise cut_off(text).at(number)
        num_before = 0 if error else len(parts)
        fields = {} if error else dict(zip(names, parts, strict=False))
        if "" in fields:
            del fields[""]
        yield Record(number, fields, error, header is None)


def _without_blank_end(cells: list[str], most: int) -> list[str]:
    """Return a row without the blank cells at its end for which there is no column."""
    return cells[:most] if not "".join(cells[most:]).strip() else cells


_JSON_KINDS = {list: "array", str: "string", int: "number", float: "number", bool: "truth value", type(None): "null"}
_JSON_EXPECTED = "one JSON object on each line"


def _jsonl_records(stream: IO[bytes]) -> Iterator[Record]:
    for number, text, error, is_ended in lines_of(stream):
        if error is None and not text.strip():
            continue
        fields: Any = {}
        if error is None:
            try:
                fields = read_json(text, expected=_JSON_EXPECTED)
            except ParseError as problem:
                if not is_ended and isinstance(problem.__cause__, json.JSONDecodeError):
                    raise cut_off(text).at(number) from problem
                error = problem
            else:
                if not isinstance(fields, dict):
                    error = ParseError(f"a JSON {_JSON_KINDS[type(fields)]}", text, 0, _JSON_EXPECTED)
        yield Record(number, {} if error else fields, error)


_CheckColumns = Callable[[Sequence[str]], None]


def check_columns(name: str, one_of: Sequence[str], columns: Sequence[str]) -> None:
    """Raise a RecipeError for a table that has no column of ``one_of``."""
    if not one_of or set(one_of) & set(columns):
        return
    remedy = next((f"{near[:-1]} for {name}?" for name in one_of if (near := near_names(name, columns))), "")
    if (separator := separator_of(",".join(columns), one_of)) is not None:
        remedy = f"; it seems to be separated by {separator!r}, and CSV is by ','"
        remedy += "; as a text file (format text) it can be read" if separator == "\t" else "; write it with commas"
    if not remedy and columns[0] == "sep=":
        remedy = "; remove the first line, which is for Excel alone"
    shown = shortened(str(list(columns)))
    raise RecipeError(f"{name} has the columns {shown}, and none of {', '.join(one_of)}{remedy}")


def separator_of(header: str, names: Sequence[str] = ()) -> str | None:
    """Return the separator of a header line that is neither a single column nor separated by commas, if there is one.

    Args:
        header: the line.
        names: columns one of which it should name.
    """
    marks = [mark for mark in ";\t|" if mark in header]
    named = (mark for mark in marks if {part.strip(' "') for part in header.split(mark)} & set(names))
    return next(named, marks[0] if marks and "," not in header else None)


def _csv_records(check: _CheckColumns, stream: IO[bytes]) -> Iterator[Record]:
    header: list[str] | None = None
    least = 0
    for line, row, error, is_ended in _csv_rows(lines_of(stream)):
        if header is None:
            cells = [cell.strip() for cell in row]
            if error is not None and (separator := separator_of(error.text)) is not None:
                error = ParseError(f"the header seems to be separated by {separator!r}", error.text, 0, "CSV with ','")
            error = error or _header_error(cells)
            if error is not None:
                raise error.at(line)
            check(cells)
            header = cells
            least = max(place for place, name in enumerate(header, start=1) if name)
            continue
        if not is_ended and _seems_cut(row, least):
            raise cut_off(error.text if error else ",".join(row)).at(line)
        cells = row if len(row) <= len(header) else _without_blank_end(row, len(header))
        if error is None and not least <= len(cells) <= len(header):
            problem = f"{len(cells)} cells, and the header names {len(header)}"
            error = ParseError(problem, ",".join(cells), 0, shortened(",".join(header)))
        fields = _id_alone(header, cells) if error else dict(zip(header, cells, strict=False))
        if "" in fields:
            del fields[""]
        yield Record(line, fields, error)


def _seems_cut(cells: Sequence[str], usual: int) -> bool:
    """Whether a last row without a line end has fewer cells than usual, or ends after a separator."""
    return len(cells) < usual or (len(cells) == usual > 1 and not cells[-1])


def _header_error(names: Sequence[str]) -> ParseError | None:
    """What is wrong with the names of the columns of a table. Columns without a name cannot be asked for."""
    shown, expected = shortened(",".join(names)), "a header of distinct names"
    if not any(names):
        return ParseError("no column has a name", shown, 0, expected)
    twice = next((name for name, count in Counter(filter(None, names)).items() if count > 1), None)
    if twice is not None:
        return ParseError(f"two columns have one name, {shortened(twice)!r}", shown, 0, expected)
    return None


def _id_alone(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    """The id of a row with too few or too many cells, if its column is certain."""
    if header[0] == "id" and cells:
        return {"id": cells[0]}
    if header[-1] == "id" and len(cells) > len(header):
        return {"id": cells[-1]}
    return {}


_Row = tuple[int, list[str], ParseError | None, bool]
"""A row of CSV: its first line, cells and error, and whether its last line has an end."""


def _csv_rows(lines: Iterator[Line]) -> Iterator[_Row]:
    """Each row that is not blank.

    A quoted cell may run over several lines. If that ends in an error, only the first line is a bad row, and reading
    continues at the second. A later line that leaves a quote open and would run into the same error is bad at once, so
    every line is read at most twice.
    """
    ahead: deque[Line] = deque()
    taken: list[Line]
    error_line: float = 0  # a quote that a line before this one leaves open runs into an error here

    def row_lines() -> Iterator[str]:
        nonlocal error_line
        yield taken[0][1] + "\n"
        characters = len(taken[0][1])
        while taken[0][0] >= error_line and characters <= LONGEST_LINE:
            line = ahead.popleft() if ahead else next(lines, None)
            if line is None:
                error_line = math.inf
                return
            taken.append(line)
            characters += len(line[1])
            yield line[1] + "\n"

    while True:
        line = ahead.popleft() if ahead else next(lines, None)
        if line is None:
            return
        number, text, error, is_ended = line
        if error is None and not text.strip():
            continue
        if '"' not in text and "\r" not in text:  # nothing to quote, and no end of a line within it
            yield number, text.split(","), error, is_ended
            continue
        taken = [line]
        cells, problem = _next_csv_row(csv.reader(row_lines(), strict=True))
        if problem:
            if len(taken) > 1:
                error_line = max(error_line, taken[-1][0])
                ahead.extendleft(reversed(taken[1:]))
            error = error or ParseError(f"no row of CSV ({problem})", text, 0, "cells between commas")
        else:
            if len(taken) > 1:
                error = next((line[2] for line in taken if line[2] is not None), None)
                is_ended = taken[-1][3]
            error = error or _late_quote_error(text, cells)
        yield number, cells, error, is_ended


def _late_quote_error(text: str, cells: Sequence[str]) -> ParseError | None:
    """Return the error of a row such as ``x, "y"``, whose second cell would be the text ``"y"`` with its quotes."""
    quote = _QUOTE_AFTER_SPACE.search(text) if '"' in "".join(cells) else None  # most cells have no quotes
    if quote is None or not any(cell[:1].isspace() and cell.lstrip().startswith('"') for cell in cells):
        return None
    return ParseError("a quote after a space", text, quote.end() - 1, "a quote right after the comma")


def _next_csv_row(rows: Iterator[list[str]]) -> tuple[list[str], str]:
    """The next row (empty at the end) and its error. Cells may have any length."""
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        return next(rows, []), ""
    except csv.Error as problem:
        return [], str(problem)
    finally:
        csv.field_size_limit(limit)


def _parquet_records(check: _CheckColumns, columns: Sequence[str] | None, stream: IO[bytes]) -> Iterator[Record]:
    import pyarrow.parquet

    try:
        whole = stream if isinstance(stream, io.BufferedReader) and stream.seekable() else io.BytesIO(stream.read())
        table = pyarrow.parquet.ParquetFile(whole, page_checksum_verification=True)
        names = table.schema_arrow.names
        wrong = _header_error(names) if names else None
        if wrong is not None:
            raise wrong
        check(names)
        read = None if columns is None else [name for name in names if name in columns]
        number = 0
        for batch in table.iter_batches(batch_size=PARQUET_ROWS, columns=read):
            for record in _parquet_rows(batch, number + 1):
                number = record.line
                yield record
        if number != table.metadata.num_rows:
            raise ParseError(f"the table has {number} rows, not {table.metadata.num_rows}", expected=_PARQUET)
    except (TreememError, *DAMAGED):
        raise
    except Exception as error:  # foreign bytes make pyarrow raise errors of many classes
        raise ParseError(f"no Parquet data ({shortened(str(error))})", expected=_PARQUET) from error


def _parquet_rows(batch: Any, first: int) -> Iterator[Record]:
    """The rows of a batch; a value that Python cannot hold is an error of its own row only."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, ValueError) as error:
        if len(batch) == 1:
            yield Record(first, {}, _bad_value(error))
            return
        for row in range(len(batch)):
            yield from _parquet_rows(batch.slice(row, 1), first + row)
        return
    for number, fields in enumerate(rows, start=first):
        yield Record(number, fields)


def _bad_value(error: Exception) -> ParseError:
    if isinstance(error, UnicodeDecodeError):
        return ParseError(f"byte 0x{error.object[error.start]:02x} is not UTF-8", expected="UTF-8 text")
    expected = "texts, numbers, and dates from year 1 to 9999 in whole microseconds"
    return ParseError(f"a value that cannot be read ({error})", expected=expected)
