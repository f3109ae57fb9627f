"""``treemem generate``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_output, add_overrides

if TYPE_CHECKING:
    from treemem.task import Task
    from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)
_SUFFIXES = {"text": ".txt", "csv": ".csv", "jsonl": ".jsonl", "parquet": ".parquet"}
_CARD = "data.md"


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("task", metavar="TASK", type=str, help="name of the task")
    outputs = "file .jsonl, .csv, .parquet, .txt or .tsv, also .gz; folder for a file per split; - for standard output"
    add_output(parser, "FILE|FOLDER", outputs)
    add_overrides(parser, "data.size=200")
    parser.add_argument("--format", type=str, metavar="FORMAT", help="text, csv, jsonl or parquet (by the name)")


def _run(options: Namespace) -> None:
    from treemem.records import check_writable, format_of, locked, write_records
    from treemem.runs.recipe import load_task_data

    name = options.output
    is_folder = name != "-" and (name.endswith(("/", "\\")) or Path(name).is_dir() or not Path(name).suffix)
    form = format_of("folder.jsonl" if is_folder else name, options.format)
    if name != "-":
        check_writable(name, overwrite=options.overwrite, is_folder=is_folder)
    task, data_options = load_task_data(options.task, options.set)
    for value in (*vars(data_options).values(), *vars(task).values()):
        if name != "-" and isinstance(value, str):
            check_writable(name, overwrite=options.overwrite, is_folder=is_folder, source=value)
    data = task.make_data(data_options)
    if is_folder:
        with locked(Path(name), wait=False):
            check_writable(name, overwrite=options.overwrite, is_folder=True)
            _write_folder(Path(name), task, data.forest, data.card, form)
        return
    if form == "text":
        _logger.info("text lines hold only %s; other formats hold more", ", ".join(task.text_columns))
    count = write_records(name, _records(task, data.forest, form), format=form, overwrite=options.overwrite)
    _logger.info("%d examples in %s", count, "standard output" if name == "-" else name)


def _records(task: Task, forest: Forest, form: str) -> Iterator[Mapping[str, Any]]:
    records = task.records_of(forest)
    if form != "text":
        return records
    return ({name: record.get(name) for name in task.text_columns} for record in records)


def _write_folder(folder: Path, task: Task, forest: Forest, card: str, form: str) -> None:
    """Write one file per split, and the data card."""
    from treemem.records import write_records, write_text, writing

    split = forest.tree_data.get("split")
    parts = {"examples": forest} if split is None else {name: forest[split == name] for name in dict.fromkeys(split)}
    with writing(folder):
        folder.mkdir(exist_ok=True)
    for name, part in parts.items():
        write_records(folder / f"{name}{_SUFFIXES[form]}", _records(task, part, form), format=form)
    write_text(folder / _CARD, card)
    counts = ", ".join(f"{len(task.examples(part))} {name}" for name, part in parts.items())
    _logger.info("%s examples in %s", counts, folder)


COMMAND = Command(
    name="generate",
    summary="Write labelled examples of a task to a file or folder, with their split and group.",
    usage="TASK -o FILE|FOLDER [FIELD=VALUE ...] [options]",
    description=(
        "The same fields and seed give the same file. treemem evaluate and recipes read these files. A recipe names\n"
        "them in data.path (equation_verification: a file; logical_inference: a folder), or in data.training_file,\n"
        "data.validation_file and data.test_file (listops). treemem tasks describe TASK lists all fields."
    ),
    examples=(
        "treemem generate equation_verification -o equations.jsonl --set data.size=200",
        "treemem generate listops -o lists data.training_size=100 data.pool=0 data.test_size=20 --format csv",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
