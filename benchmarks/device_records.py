"""What :mod:`benchmarks.devices` has measured: lines of JSON, and a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read(file: Path) -> list[Record]:
    """Return the records of a file; none if there is no file."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def add(file: Path, record: Record) -> None:
    """Add a record to a file."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(record) + "\n")


def table(records: Sequence[Record]) -> str:
    """The records as Markdown."""
    columns = ("milliseconds", "busy", "launches", "waits")
    lines = ["| workload | step | way | ms | GPU busy, ms | launches | waits |", "|---|---|---|---:|---:|---:|---:|"]
    for record in records:
        if "begun" in record:
            continue
        cells = [record.get(column, "") for column in columns]
        shown = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells]
        if "error" in record:
            shown[0] = record["error"].splitlines()[0].replace("|", "/")
        lines.append(f"| {record['workload']} | {record.get('mode', '')} | {record['way']} | {' | '.join(shown)} |")
    return "\n".join(lines)
