"""Records into files."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from treemem.errors import RecipeError, shown
from treemem.records.places import replacing, writing
from treemem.records.reader import PARQUET_ROWS, format_of
from treemem.records.source import is_packed

_AS_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_Fields = Sequence[str] | None
_Types = Mapping[str, type] | None


def records_of_columns(columns: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records that columns of equal length make, one after the other."""
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def write_records(
    target: str | os.PathLike[str],
    records: Iterable[Mapping[str, Any]],
    *,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    types: Mapping[str, type] | None = None,
    overwrite: bool = True,
) -> int:
    """Write records as they come; the file appears under its name only when all are written.

    Args:
        target: a path, or ``"-"`` for standard output. A name that ends in ``.gz`` is packed.
        format: one of ``FORMATS``; told from the name by default.
        fields: names of the fields, in order; those of the first record by default.
        types: for Parquet, ``bool``, ``int``, ``float`` or ``str`` for each field, where each may also be None. With
            types, Parquet too is written without holding all records in memory.
        overwrite: replace a file that is there when its other writers are done.

    Returns:
        The number of records written.

    Raises:
        RecipeError: the file is there and ``overwrite`` is false; the format cannot be told; a record has other fields
            than the first, or a value that the format cannot hold; the file cannot be written; or the system fails
            while a record is made.
    """
    name = os.fspath(target)
    wanted = format_of(name, format)
    if name == "-":
        if sys.stdout is None:
            raise RecipeError("standard output is closed; name a file as output")
        with writing("standard output"):
            count = _write(sys.stdout.buffer, records, wanted, fields, types)
            sys.stdout.buffer.flush()
        return count
    with replacing(name, overwrite=overwrite) as temporary:
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
    """Write records straight to a file, which is incomplete if that fails; otherwise as :func:`write_records`.

    Args:
        path: the file, whatever its name ends in.
        packed: whether to pack it, as ``.gz``.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("wb") as plain:
        if not packed:
            return _write(plain, records, format, fields, types)
        with gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) as stream:
            return _write(cast("IO[bytes]", stream), records, format, fields, types)


def _write(stream: IO[bytes], records: Iterable[Mapping[str, Any]], format: str, fields: _Fields, types: _Types) -> int:
    write = {"text": _write_text, "csv": _write_csv, "jsonl": _write_jsonl, "parquet": _write_parquet}[format]
    count = 0

    def counted() -> Iterator[Mapping[str, Any]]:
        nonlocal count
        for record in _checked(records, fields):
            count += 1
            yield record

    write(stream, counted(), fields, types)
    return count


def _checked(records: Iterable[Mapping[str, Any]], fields: _Fields) -> Iterator[Mapping[str, Any]]:
    """The records, all with the same fields in the same order.

    Raises:
        RecipeError: a record has other fields, or the system failed while it was made.
    """
    names = fields
    remaining = iter(records)
    for number in itertools.count(1):
        try:
            record = next(remaining, None)
        except OSError as error:
            raise RecipeError(f"record {number} could not be made or read: {error.strerror or error}") from error
        if record is None:
            return
        names = tuple(record) if names is None else names
        if len(record) != len(names) or any(name not in record for name in names):
            raise RecipeError(f"record {number} has the fields {list(record)}, and the file has {list(names)}")
        yield {name: record[name] for name in names}


def _write_text(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: _Fields, types: _Types) -> None:
    for number, record in enumerate(records, start=1):
        parts = ["" if value is None else str(value) for value in record.values()]
        if any(character in part for part in parts for character in "\t\r\n"):
            raise RecipeError(f"record {number} has a tab or line end in a value; write CSV or JSONL instead of text")
        stream.write(("\t".join(parts) + "\n").encode("utf-8", errors="backslashreplace"))


def _write_csv(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: _Fields, types: _Types) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    table = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # the other leaves a lone "\r" as it is

    def write(cells: Collection[Any]) -> None:
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoted if has_return else table).writerow(cells)

    try:
        first = next(records, None)
        write(fields or list(first or ()))
        for record in itertools.chain([] if first is None else [first], records):
            write(record.values())
    finally:
        text.detach()  # or it would close the stream, which may be standard output


def _write_jsonl(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: _Fields, types: _Types) -> None:
    for number, record in enumerate(records, start=1):
        try:
            line = json_line(record)
        except TypeError as error:
            raise RecipeError(f"record {number}: JSONL cannot hold a value of {shown(record, 200)}: {error}") from error
        stream.write(line.encode("utf-8"))


def _write_parquet(stream: IO[bytes], records: Iterator[Mapping[str, Any]], fields: _Fields, types: _Types) -> None:
    """Write tables of some thousand records; without ``types``, keep them until all types are known."""
    import pyarrow
    import pyarrow.parquet

    columns = {bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    names = list(fields or types or ())
    schema = pyarrow.schema([(name, columns[types[name]]) for name in names]) if types else None

    def tables() -> Iterator[Any]:
        while chunk := list(itertools.islice(records, PARQUET_ROWS)):
            try:
                yield pyarrow.Table.from_pylist(chunk, schema)
            except UnicodeEncodeError:
                yield pyarrow.Table.from_pylist([_escaped(record) for record in chunk], schema)

    try:
        if schema is not None:
            with pyarrow.parquet.ParquetWriter(stream, schema, write_page_checksum=True) as writer:
                for table in tables():
                    writer.write_table(table)
            return
        parts = list(tables()) or [pyarrow.table({name: [] for name in names})]
        whole = pyarrow.concat_tables(parts, promote_options="permissive")
        pyarrow.parquet.write_table(whole, stream, write_page_checksum=True)
    except (OverflowError, pyarrow.ArrowException) as error:
        raise RecipeError(f"Parquet cannot hold these records ({error}); write JSONL or CSV") from error


def _escaped(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with lone surrogates, which UTF-8 cannot spell, as escapes, as in CSV."""
    return {
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in record.items()
    }


def json_line(record: Mapping[str, Any]) -> str:
    """Return one record as a line of JSONL, its end included; a number that JSON has no word for becomes null."""
    try:
        text = _AS_JSON(record)
    except ValueError:  # a number that is not finite
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
