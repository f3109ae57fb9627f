"""What a run reports: lines of JSON, and a line for each epoch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treemem.records import json_line, write_text, writing
from treemem.runs.options import TrainingOptions


class RunLog:
    """The log of a run: one line of JSON an epoch.

    Args:
        path: the JSONL file.
        records: of earlier epochs; the file then holds exactly these.

    Raises:
        RecipeError: the file cannot be written.
    """

    def __init__(self, path: Path, records: Sequence[Mapping[str, Any]] = ()) -> None:
        self.path = path
        write_text(path, "".join(json_line(record) for record in records))

    def add(self, record: Mapping[str, Any]) -> None:
        """Append an epoch's record. If it cannot be written whole, nothing is appended."""
        line = json_line(record).encode("utf-8")
        with writing(self.path), self.path.open("ab", buffering=0) as stream:
            end = stream.tell()
            try:
                while line:
                    line = line[stream.write(line) :]
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(end)
                raise


def epoch_line(record: Mapping[str, Any], options: TrainingOptions, monitored: str, is_best: bool) -> str:
    """Return a summary of an epoch in one line."""
    losses = "".join(
        f", {name[:-5]} loss {record[name]:.4f}"
        for name in record
        if name.endswith("_loss") and not name.startswith("validation")
    )
    line = f"seed {options.seed}, epoch {record['epoch']}/{options.epochs}: loss {record['loss']:.4f}{losses}"
    if monitored in record:
        line += f", {monitored.replace('_', ' ')} {record[monitored]:.4f}{' (best)' if is_best else ''}"
    trees_per_second = record["trees"] / record["seconds"]
    rates = f"{record['examples_per_second']:.0f} examples/s, {trees_per_second:.0f} trees/s"
    return f"{line}; {rates}, {record['loader_seconds'] / record['seconds']:.0%} of the time for making batches"
