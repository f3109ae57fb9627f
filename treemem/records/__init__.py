"""Records out of and into files: text lines, CSV, JSONL and Parquet, plain or gzipped, standard input and output."""

from __future__ import annotations

from treemem.records.places import (
    append_to,
    bring_to_disk,
    cannot_write,
    check_writable,
    lock_path,
    locked,
    new_file,
    replacing,
    temporary_path,
    write_text,
    writing,
)
from treemem.records.reader import (
    FORMATS,
    Record,
    check_columns,
    format_of,
    read_records,
)
from treemem.records.source import (
    LONGEST_LINE,
    check_unchanged,
    is_packed,
    open_source,
    read_array,
    read_json,
    read_source,
    source_size,
    text_lines,
)
from treemem.records.writer import json_line, records_of_columns, write_file, write_records

__all__ = [
    "FORMATS",
    "LONGEST_LINE",
    "Record",
    "append_to",
    "bring_to_disk",
    "cannot_write",
    "check_columns",
    "check_unchanged",
    "check_writable",
    "format_of",
    "is_packed",
    "json_line",
    "lock_path",
    "locked",
    "new_file",
    "open_source",
    "read_array",
    "read_json",
    "read_records",
    "read_source",
    "records_of_columns",
    "replacing",
    "source_size",
    "temporary_path",
    "text_lines",
    "write_file",
    "write_records",
    "write_text",
    "writing",
]
