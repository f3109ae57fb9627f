"""What a run reports: lines of JSON, TensorBoard curves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treemem.errors import RecipeError
from treemem.records import json_line, write_text, writing
from treemem.runs.options import TrainingOptions

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def summary_writer() -> type[SummaryWriter]:
    """Return TensorBoard's ``SummaryWriter``.

    Raises:
        RecipeError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RecipeError("tensorboard is not installed; pip install 'treemem[log]'") from error
    return SummaryWriter


class RunLog:
    """The log of a run: one line of JSON an epoch, and optionally TensorBoard curves.

    Args:
        path: the JSONL file.
        records: of earlier epochs; the file then holds exactly these.
        tensorboard: write event files to the folder ``tensorboard`` beside it.

    Raises:
        RecipeError: TensorBoard is not installed, or a file cannot be written.
    """

    def __init__(self, path: Path, records: Sequence[Mapping[str, Any]] = (), *, tensorboard: bool = False) -> None:
        self.path = path
        write_text(path, "".join(json_line(record) for record in records))
        self._writer: Any = None
        if tensorboard:
            self._curves = path.parent / "tensorboard"
            with writing(self._curves):
                self._writer = summary_writer()(str(self._curves), purge_step=len(records) + 1)

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
        if self._writer is not None:
            with writing(self._curves):
                for name, value in record.items():
                    if isinstance(value, (int, float)) and name != "epoch":
                        self._writer.add_scalar(name, value, int(record["epoch"]))

    def close(self) -> None:
        """Close the event files."""
        if self._writer is not None:
            with writing(self._curves):
                self._writer.close()


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
