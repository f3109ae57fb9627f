"""Records out of and into files: text lines, CSV, JSONL and Parquet, plain or gzipped, standard input and output."""

from __future__ import annotations

import contextlib
import csv
import errno
import functools
import gzip
import io
import itertools
import json
import math
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from treemem.errors import ParseError, RecipeError, near_names

FORMATS = ("text", "csv", "jsonl", "parquet")
_FORMAT_OF_SUFFIX = {
    **dict.fromkeys(("", ".txt", ".tsv"), "text"),
    ".csv": "csv",
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".parquet": "parquet",
}
_PARQUET_ROWS = 8192
_AS_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_LONGEST_CELL = 2**31 - 1
_Line = tuple[int, str, ParseError | None]


@dataclass(frozen=True)
class Record:
    """One record of a file.

    Attributes:
        line: where it stands: the line it begins on (row, in Parquet), from 1; a CSV header counts as line 1.
        fields: its values by name; where ``error`` is set, its ``id`` at most.
        error: why this record could not be read, else ``None``.
    """

    line: int
    fields: dict[str, Any]
    error: ParseError | None = None


def read_records(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    text_fields: Sequence[str] = ("text",),
    one_of: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    strict: bool = True,
    skip_blank_lines: bool = False,
) -> Iterator[Record]:
    """Read a file record by record; text forms are never held in memory as a whole.

    Blank lines of JSONL are no records; they count where lines are numbered. One of a text file is a record without
    text, and one of CSV a bad record, unless they are to be skipped too.

    Args:
        source: a path, or ``"-"`` for standard input. A name that ends in ``.gz`` is unpacked.
        format: one of ``FORMATS``; told from the name by default (no suffix, or standard input: ``"text"``).
        text_fields: names of the tab-separated parts of a text line; the later ones may be missing.
        one_of: fields of which a table, CSV or Parquet, must have a column at least, if any are given.
        columns: of Parquet, the columns to read, as far as they are there; all by default.
        strict: raise at the first record that cannot be read, rather than yield it with its ``error``.
        skip_blank_lines: of text and of CSV, whose header may then stand below some; in quotes they stay.

    Raises:
        RecipeError: there is no such file, or its format cannot be told, or its columns are none of ``one_of``.
        ParseError: the file as a whole is damaged, or (with ``strict``) a record is; it names the file and the line.
    """
    name, _ = _named(source)
    check_columns = functools.partial(_check_columns, name, one_of)
    readers: dict[str, Callable[[IO[bytes]], Iterator[Record]]] = {
        "text": functools.partial(_text_records, text_fields, skip_blank_lines),
        "csv": functools.partial(_csv_records, check_columns, skip_blank_lines),
        "jsonl": _jsonl_records,
        "parquet": functools.partial(_parquet_records, check_columns, columns),
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
                    record = Record(line, record.fields, error_here)
                yield record
        except ParseError as error:
            if error.source:
                raise
            raise error.at(error.line, name) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problem = f"the packed data are damaged after this line ({error})"
            if not line and isinstance(error, gzip.BadGzipFile):
                problem = f"no packed data, though the name ends in .gz ({error})"
            raise ParseError(problem, line=max(line, 1), source=name) from error


@contextlib.contextmanager
def open_source(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where its name ends in ``.gz``, or of standard input for ``"-"``.

    Raises:
        RecipeError: there is no such file, or it cannot be read.
    """
    name, path = _named(source)
    if path is None:
        yield sys.stdin.buffer
        return
    try:
        stream: IO[bytes] = path.open("rb")
    except OSError as error:
        raise RecipeError(f"cannot read {name}: {error.strerror}") from error
    with stream:
        if is_packed(name):
            with gzip.open(stream, "rb") as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield stream


def write_records(
    target: str | os.PathLike[str],
    records: Iterable[Mapping[str, Any]],
    *,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    types: Mapping[str, type] | None = None,
) -> int:
    """Write records as they come; the file appears under its name only when all are written.

    Args:
        target: a path, or ``"-"`` for standard output. A name that ends in ``.gz`` is packed.
        format: one of ``FORMATS``; told from the name by default.
        fields: names of the fields, in order; those of the first record by default.
        types: of each field, ``int``, ``float`` or ``str``, beside None: with them Parquet too is written without
            holding all records in memory.

    Returns:
        The number of records written.

    Raises:
        RecipeError: the format cannot be told, a record has other fields than the first, or values that the format
            cannot hold; the place cannot be written, as where a disk is full; or the system fails in making them.
    """
    name, path = _named(target)
    wanted = format_of(name, format)
    if path is None:
        with writing("standard output"):
            count = _write(sys.stdout.buffer, records, wanted, fields, types)
            sys.stdout.buffer.flush()
        return count
    with replacing(path) as temporary:
        return write_file(temporary, records, format=wanted, packed=is_packed(name), fields=fields, types=types)


def write_file(
    path: Path,
    records: Iterable[Mapping[str, Any]],
    *,
    format: str,
    packed: bool,
    fields: Sequence[str] | None = None,
    types: Mapping[str, type] | None = None,
) -> int:
    """Write records straight to a file, of which a part is there where that fails; the rest as :func:`write_records`.

    Args:
        path: the file, whatever its name ends in.
        packed: whether to pack it, as ``.gz``.

    Raises:
        OSError: the place cannot be written.
    """
    with path.open("wb") as plain:
        if not packed:
            return _write(plain, records, format, fields, types)
        with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as stream:
            return _write(cast("IO[bytes]", stream), records, format, fields, types)


def _write(
    stream: IO[bytes],
    records: Iterable[Mapping[str, Any]],
    format: str,
    fields: Sequence[str] | None,
    types: Mapping[str, type] | None,
) -> int:
    write = {"text": _write_text, "csv": _write_csv, "jsonl": _write_jsonl, "parquet": _write_parquet}[format]
    if format == "parquet" and types is not None:
        write = functools.partial(_write_typed_parquet, types)
    count = 0

    def counted() -> Iterator[Mapping[str, Any]]:
        nonlocal count
        for record in _checked(_given(records), fields):
            count += 1
            yield record

    write(stream, counted(), fields)
    return count


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside ``path``; what is written there takes the place of ``path`` if the block ends well.

    Where ``path`` is a link, that is the place that it leads to.

    Raises:
        RecipeError: as :func:`checked_place`, or it cannot be written, as where a disk is full. What stood at ``path``
            is then as it was.
    """
    place = checked_place(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    with writing(place):
        try:
            yield temporary
            bring_to_disk(temporary)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)


def check_replaceable(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse to write where something is, unless it may be replaced; before work is done for it.

    Raises:
        RecipeError: it is there, and ``overwrite`` does not hold.
    """
    if not overwrite and Path(path).exists():
        raise RecipeError(f"{path} exists already; choose another place, or say overwrite=True to replace it")


def checked_place(path: str | os.PathLike[str]) -> Path:
    """Where a file is written that is to be found at ``path``: there, or where a link leads to.

    Raises:
        RecipeError: the folder does not exist, or there is no file at ``path`` but a folder, a device or a pipe.
    """
    path = Path(path)
    with writing(path):
        if path.is_dir():
            raise RecipeError(f"cannot write {path}: it is a folder")
        if path.exists() and not path.is_file():
            problem = "it is a device or a pipe; name a file, or - where that is standard output"
            raise RecipeError(f"cannot write {path}: {problem}")
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        if not place.parent.is_dir():
            raise RecipeError(f"cannot write {path}: there is no folder {place.parent}")
    return place


def bring_to_disk(path: Path) -> None:
    """Return when what was written to a file is on the disk.

    Raises:
        OSError: it cannot be.
    """
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextlib.contextmanager
def writing(place: str | os.PathLike[str]) -> Iterator[None]:
    """Tell the system's errors of the block as ones of writing to ``place``.

    Raises:
        RecipeError: it cannot be written; says why and what to do.
    """
    try:
        yield
    except OSError as error:
        raise RecipeError(f"cannot write {place}: {cannot_write(error)}") from error


def cannot_write(error: OSError) -> str:
    """Why something could not be written, and what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free some space there and do the same again" if full else "make it writable"
    return f"{error.strerror or error}; {remedy}, or choose another place"


def _named(place: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """How messages call a file, and its path; standard input and output have none."""
    name = os.fspath(place)
    return (name, None) if name == "-" else (name, Path(name))


def is_packed(name: str) -> bool:
    """Whether a file of this name is packed."""
    return name.lower().endswith(".gz")


def format_of(name: str, format: str | None) -> str:
    """The format of a file: what ``format`` says, else what its name does.

    Raises:
        RecipeError: no such format, or a name that tells none.
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


def text_lines(stream: IO[bytes]) -> Iterator[_Line]:
    """Each line with its number, without its end; bytes that are not UTF-8 become an error of their line alone."""
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield number, raw.decode("utf-8"), None
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", errors="replace")
            offset = len(raw[: error.start].decode("utf-8"))
            yield number, text, ParseError(f"byte 0x{raw[error.start]:02x} is not UTF-8", text, offset, "UTF-8 text")


def _text_records(names: Sequence[str], skip_blank_lines: bool, stream: IO[bytes]) -> Iterator[Record]:
    for number, text, error in text_lines(stream):
        parts = text.split("\t")
        if skip_blank_lines and len(parts) == 1 and not text.strip():
            continue
        if error is None and len(parts) > len(names):
            offset = sum(len(part) + 1 for part in parts[: len(names)]) - 1
            error = ParseError(f"{len(parts)} parts between tabs", text, offset, "<TAB>".join(names))
        yield Record(number, {} if error else dict(zip(names, parts, strict=False)), error)


_JSON_KINDS = {list: "array", str: "string", int: "number", float: "number", bool: "truth value", type(None): "null"}


def _jsonl_records(stream: IO[bytes]) -> Iterator[Record]:
    for number, text, error in text_lines(stream):
        if error is None and not text.strip():
            continue
        fields: Any = {}
        if error is None:
            try:
                fields = json.loads(text)
            except json.JSONDecodeError as problem:
                error = ParseError(f"no JSON here ({problem.msg})", text, problem.pos, "one JSON object on each line")
            except (ValueError, RecursionError) as problem:
                error = ParseError(f"JSON that cannot be read ({problem})", text, 0, "one JSON object on each line")
            if error is None and not isinstance(fields, dict):
                error = ParseError(f"a JSON {_JSON_KINDS[type(fields)]}", text, 0, "one JSON object on each line")
        yield Record(number, {} if error else fields, error)


_CheckColumns = Callable[[Sequence[str]], None]


def _check_columns(name: str, one_of: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a table none of whose columns can hold what is read from it.

    Raises:
        RecipeError: it names the columns, and what may be meant.
    """
    if not one_of or set(one_of) & set(columns):
        return
    remedy = next((near for column in columns if (near := near_names(column, one_of))), "")
    if len(columns) == 1 and (separator := next((mark for mark in ";\t|" if mark in columns[0]), None)):
        remedy = f"; it seems to be separated by {separator!r}, and CSV is by ','"
    raise RecipeError(f"{name} has the columns {list(columns)}, and none of {', '.join(one_of)}{remedy}")


def _csv_records(check_columns: _CheckColumns, skip_blank_lines: bool, stream: IO[bytes]) -> Iterator[Record]:
    header: list[str] | None = None
    for line, row, error in _csv_rows(text_lines(stream), skip_blank_lines):
        cells = [cell.strip() for cell in row] if header is None else row
        if header is None:
            if error is None:
                error = _header_error(cells)
            if error is not None:
                raise error.at(line)
            check_columns(cells)
            header = cells
            continue
        if error is None and len(cells) != len(header):
            problem = f"{len(cells)} cells, and the header names {len(header)}"
            error = ParseError(problem, ",".join(cells), 0, ",".join(header))
        yield Record(line, _id_alone(header, cells) if error else dict(zip(header, cells, strict=True)), error)


def _header_error(names: Sequence[str]) -> ParseError | None:
    """What is wrong with the names of the columns of a table."""
    if not any(names):
        return ParseError("no column has a name", ",".join(names), 0, "a header of distinct names")
    if len(set(names)) < len(names):
        return ParseError("two columns have one name", ",".join(names), 0, "a header of distinct names")
    return None


def _id_alone(header: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    """The id of a row of too few cells or too many, where it stands so that these do not matter."""
    if header[0] == "id" and cells:
        return {"id": cells[0]}
    if header[-1] == "id" and len(cells) > len(header):
        return {"id": cells[-1]}
    return {}


def _csv_rows(lines: Iterator[_Line], skip_blank_lines: bool) -> Iterator[tuple[int, list[str], ParseError | None]]:
    """Each row with its first line, and what is wrong with it.

    A quoted cell may run over several lines. Where that ends in an error, the first line alone is the bad row, and
    reading goes on at the second. Each later line that leaves a quote open and would run into the same error is bad
    at once: every line is read twice at most.
    """
    ahead: deque[_Line] = deque()
    taken: list[_Line] = []
    error_line: float = 0  # a quote that a line before this one leaves open runs into an error here

    def row_lines() -> Iterator[str]:
        nonlocal error_line
        while not taken or taken[0][0] >= error_line:
            line = ahead.popleft() if ahead else next(lines, None)
            if line is None:
                if taken:
                    error_line = math.inf
                return
            taken.append(line)
            yield line[1] + "\n"

    while True:
        taken.clear()
        cells, problem = _next_csv_row(csv.reader(row_lines(), strict=True))
        if not taken:
            return
        number, text, error = taken[0]
        if skip_blank_lines and not text.strip():
            continue
        if problem:
            if len(taken) > 1:
                error_line = max(error_line, taken[-1][0])
                ahead.extendleft(reversed(taken[1:]))
            error = error or ParseError(f"no row of CSV ({problem})", text, 0, "cells between commas")
        else:
            error = next((error for _, _, error in taken if error is not None), None)
        yield number, cells, error


def _next_csv_row(rows: Iterator[list[str]]) -> tuple[list[str], str]:
    """The next row, none at the end, and what is wrong with it. Cells may be of any length."""
    limit = csv.field_size_limit(_LONGEST_CELL)
    try:
        return next(rows, []), ""
    except csv.Error as problem:
        return [], str(problem)
    finally:
        csv.field_size_limit(limit)


def _parquet_records(
    check_columns: _CheckColumns, columns: Sequence[str] | None, stream: IO[bytes]
) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    whole = stream if isinstance(stream, io.BufferedReader) and stream.seekable() else io.BytesIO(stream.read())
    try:
        table = pyarrow.parquet.ParquetFile(whole)
        names = table.schema_arrow.names
        wrong = _header_error(names) if names else None
        if wrong is not None:
            raise wrong
        check_columns(names)
        read = None if columns is None else [name for name in names if name in columns]
        number = 0
        for batch in table.iter_batches(batch_size=_PARQUET_ROWS, columns=read):
            for record in _parquet_rows(batch, number + 1):
                number = record.line
                yield record
    except (pyarrow.ArrowException, OSError) as error:
        raise ParseError(f"no Parquet data ({error})", expected="a Parquet file") from error


def _parquet_rows(batch: Any, first: int) -> Iterator[Record]:
    """The rows of a batch; a value that Python cannot hold is an error of its row alone."""
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


def _given(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The records; an error of the system in making them is told as that, and not as one of writing them."""
    number = 1
    try:
        for record in records:
            yield record
            number += 1
    except OSError as error:
        raise RecipeError(f"record {number} could not be made or read: {error.strerror or error}") from error


def _checked(records: Iterable[Mapping[str, Any]], fields: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
    """The records, all of the same fields, and in the same order."""
    names = fields
    for number, record in enumerate(records, start=1):
        names = tuple(record) if names is None else names
        if len(record) != len(names) or any(name not in record for name in names):
            raise RecipeError(f"record {number} has the fields {list(record)}, and the file has {list(names)}")
        yield {name: record[name] for name in names}


def _write_text(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: Sequence[str] | None) -> None:
    for number, record in enumerate(records, start=1):
        parts = ["" if value is None else str(value) for value in record.values()]
        if any(character in part for part in parts for character in "\t\r\n"):
            raise RecipeError(f"record {number} has a tab or line end in a value; write CSV or JSONL instead of text")
        stream.write(("\t".join(parts) + "\n").encode("utf-8", errors="backslashreplace"))


def _write_csv(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: Sequence[str] | None) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    table = csv.writer(text, lineterminator="\n")
    try:
        first = next(records, None)
        table.writerow(fields or first or ())
        for record in itertools.chain([] if first is None else [first], records):
            table.writerow(record.values())
    finally:
        text.detach()  # or it would close the stream, which may be standard output


def _write_jsonl(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: Sequence[str] | None) -> None:
    for number, record in enumerate(records, start=1):
        try:
            line = json_line(record)
        except TypeError as error:
            name = next(name for name, value in record.items() if not _is_json({name: value}))
            problem = f"record {number}: JSONL cannot hold the value of {name!r}: {error}"
            raise RecipeError(problem) from error
        stream.write(line.encode("utf-8"))


def _is_json(value: object) -> bool:
    try:
        _AS_JSON(_finite_or_none(value))
    except TypeError:
        return False
    return True


def _write_parquet(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: Sequence[str] | None) -> None:
    import pyarrow
    import pyarrow.parquet

    tables = [pyarrow.table({name: [] for name in fields or ()})]
    while chunk := list(itertools.islice(records, _PARQUET_ROWS)):
        columns: dict[str, Any] = {}
        for name in chunk[0]:
            try:
                columns[name] = pyarrow.array([record[name] for record in chunk])
            except (OverflowError, UnicodeEncodeError) as error:
                raise RecipeError(f"Parquet cannot hold a value of the column {name!r}: {error}") from error
            except pyarrow.ArrowException as error:
                raise RecipeError(f"the column {name!r} of these records mixes types: {error}") from error
        tables.append(pyarrow.table(columns))
    try:
        whole = pyarrow.concat_tables(tables[1:] or tables, promote_options="permissive")
    except pyarrow.ArrowException as error:
        raise RecipeError(f"a column of these records mixes types: {error}") from error
    pyarrow.parquet.write_table(whole, stream)


def _write_typed_parquet(
    types: Mapping[str, type], stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: Sequence[str] | None
) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, columns[types[name]]) for name in fields or types])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        while chunk := list(itertools.islice(records, _PARQUET_ROWS)):
            try:
                try:
                    table = pyarrow.Table.from_pylist(chunk, schema)
                except UnicodeEncodeError:
                    table = pyarrow.Table.from_pylist([_escaped(record) for record in chunk], schema)
                writer.write_table(table)
            except (OverflowError, pyarrow.ArrowException) as error:
                raise RecipeError(f"Parquet cannot hold a value of these records: {error}") from error


def _escaped(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with lone surrogates, which UTF-8 cannot spell, by escapes as in CSV."""
    return {
        name: value.encode("utf-8", errors="backslashreplace").decode("utf-8") if isinstance(value, str) else value
        for name, value in record.items()
    }


def json_line(record: Mapping[str, Any]) -> str:
    """One record as a line of JSONL, its end included; a number that JSON has no word for becomes null."""
    try:
        text = _AS_JSON(record)
    except ValueError:  # a number that is not finite, or a record within itself
        text = _AS_JSON(_finite_or_none(record))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can spell
        text = json.dumps(_finite_or_none(record), allow_nan=False)
    return text + "\n"


def _finite_or_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite_or_none(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite_or_none(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
