"""Records out of and into files: text lines, CSV, JSONL and Parquet, plain or gzipped, standard input and output."""

from __future__ import annotations

from treemem.records.places import (
    bring_to_disk,
    cannot_write,
    check_writable,
    lock_path,
    locked,
    replacing,
    temporary_path,
    writing,
)
from treemem.records.reader import (
    FORMATS,
    Record,
    check_columns,
    format_of,
    is_packed,
    open_source,
    read_records,
    text_lines,
)
from treemem.records.writer import json_line, write_file, write_records

__all__ = [
    "FORMATS",
    "Record",
    "bring_to_disk",
    "cannot_write",
    "check_columns",
    "check_writable",
    "format_of",
    "is_packed",
    "json_line",
    "lock_path",
    "locked",
    "open_source",
    "read_records",
    "replacing",
    "temporary_path",
    "text_lines",
    "write_file",
    "write_records",
    "writing",
]
