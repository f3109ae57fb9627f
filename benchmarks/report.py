"""The table for people, the rows for programs, and what machine they are from."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.device import measured_device
from benchmarks.timing import Row


def environment() -> str:
    """What the figures depend on beside the code."""
    threads = torch.get_num_threads()
    return (
        f"torch {torch.__version__}, {threads} {'thread' if threads == 1 else 'threads'}, "
        f"Python {platform.python_version()}, {_processor()}{_gpu()}"
    )


_RATES = {
    "memory": ("bytes/row", "baseline's"),
    "compiling": ("seconds", "gained a batch"),
    "launches": ("kernels/step", "baseline's"),
    "waits": ("waits/step", "baseline's"),
}


def as_markdown(rows: Sequence[Row]) -> str:
    """The rows as Markdown: a table of speeds and, if there are such rows, one of each other sort."""
    by_sort: dict[str, list[Row]] = {}
    for row in rows:
        by_sort.setdefault(row.mode.split()[0] if row.mode.split()[0] in _RATES else "speed", []).append(row)
    first = ("workload", "mode", "baseline", "ratio", "spread")
    return "\n\n".join(
        _table((*first, *_RATES.get(sort, ("examples/s", "baseline's"))), of_sort) for sort, of_sort in by_sort.items()
    )


def as_json(rows: Sequence[Row]) -> str:
    """The rows as a JSON list."""
    return json.dumps([row.as_record() for row in rows], indent=1) + "\n"


def write(rows: Sequence[Row], heading: Sequence[str], json_file: Path | None, markdown_file: Path | None) -> None:
    """Write the rows so far to the files that were asked for."""
    if json_file is not None:
        json_file.write_text(as_json(rows), encoding="utf-8")
    if markdown_file is not None:
        page = ["# Benchmarks: every row", "", *heading, "", as_markdown(rows), ""]
        markdown_file.write_text("\n".join(page), encoding="utf-8")


def _table(names: Sequence[str], rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(names) + " |", "|---|---|---|" + "---:|" * (len(names) - 3)]
    lines += [
        f"| {row.workload} | {row.mode} | {row.baseline} | {_shown(row.ratio)} "
        f"| {_shown(row.spread[0])} to {_shown(row.spread[1])} | {_shown(row.rate)} | {_shown(row.baseline_rate)} |"
        for row in rows
    ]
    return "\n".join(lines)


def _shown(number: float) -> str:
    """Three digits at least, and no more than that after the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def _gpu() -> str:
    return f", {torch.cuda.get_device_name(measured_device())}" if measured_device().type == "cuda" else ""


def _processor() -> str:
    """The model of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
