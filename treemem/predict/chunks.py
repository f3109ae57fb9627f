"""Chunks of some thousand records, which other processes can read."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treemem.errors import ParseError, RecipeError, TreememError
from treemem.reading_processes import CannotBeSent, available_cores, reading_processes
from treemem.trees.formats.record_reader import Example, ReadExamples, RecordReader, read_examples
from treemem.trees.tree import Tree

CHUNK_RECORDS = 8192
"""Most records of a chunk."""

CHUNK_CHARACTERS = 1 << 22
"""A chunk ends when it has this many characters. This bounds its memory."""

MOST_PROCESSES = 4
"""Default of the processes that read records, which keep the scoring process busy."""

_CHARACTERS_PER_NODE = 8


class Entry(NamedTuple):
    """One record to predict.

    Attributes:
        line: its line, from 1.
        id: its own id, or ``line``.
        example: what the example is read from; None if ``problem`` is set.
        problem: why the record cannot be read.
    """

    line: int
    id: Any
    example: Example | None
    problem: TreememError | None = None


@dataclass(frozen=True)
class Chunk:
    """Records that are read and scored together.

    Attributes:
        entries: the records.
        num_done: how many of the first records have answers from an earlier run.
    """

    entries: Sequence[Entry]
    num_done: int = 0


def id_of(fields: Mapping[str, Any], line: int) -> Any:
    """Return the ``id`` of a record as a JSON value, or its line if it has none."""
    given = fields.get("id")
    if isinstance(given, (np.generic, np.ndarray)):
        given = given.tolist()
    if given is None or (given != given) is True:  # NaN; an array compares its values one by one
        return line
    if isinstance(given, (list, dict)):
        return json.dumps(given, ensure_ascii=False, default=str)
    is_plain = isinstance(given, (str, int)) or (isinstance(given, float) and abs(given) != float("inf"))
    return given if is_plain else str(given)


def example_of(record: Mapping[str, Any], reader: RecordReader) -> Mapping[str, Any]:
    """Return the record with None for the fields that no example is read from. Error messages name these too."""
    needed = reader.example_fields
    return {name: record[name] if name in needed else None for name in record} if needed else record


def chunks_of(entries: Iterable[Entry]) -> Iterator[Chunk]:
    """Yield the records in chunks, which depend only on the records. An error of ``entries`` comes after the last."""
    chunk: list[Entry] = []
    characters = 0
    problem: TreememError | None = None
    try:
        for entry in entries:
            chunk.append(entry)
            characters += _characters(entry)
            if len(chunk) == CHUNK_RECORDS or characters >= CHUNK_CHARACTERS:
                yield Chunk(chunk)
                chunk, characters = [], 0
    except TreememError as error:
        problem = error
    if chunk:
        yield Chunk(chunk)
    if problem is not None:
        raise problem


def _characters(entry: Entry) -> int:
    """Return the approximate size of a record in characters."""
    if isinstance(entry.problem, ParseError):
        return len(entry.problem.text)
    values = entry.example.values() if isinstance(entry.example, Mapping) else [entry.example]
    return sum(
        len(value) if isinstance(value, str) else _CHARACTERS_PER_NODE * value.size
        for value in values
        if isinstance(value, (str, Tree))
    )


def read_chunks(
    reader: RecordReader, chunks: Iterable[Chunk], processes: int | None
) -> Iterator[tuple[Chunk, ReadExamples]]:
    """Read the examples of chunks, in order.

    This process reads a single chunk, and chunks that cannot be sent to another process.

    Args:
        reader: the reader of the task.
        chunks: the chunks. If their iterator raises an error, the chunks before it are read first.
        processes: number of other processes that read; 1: none; None: the number of cores, at most 4.

    Raises:
        RecipeError: a process died.
    """
    count = min(MOST_PROCESSES, available_cores()) if processes is None else processes
    most_waiting = 2 * count if count > 1 else 0
    waiting: deque[tuple[Chunk, Future[ReadExamples] | None]] = deque()
    submit = None
    problem: TreememError | None = None
    try:
        with ExitStack() as stack:
            try:
                for chunk in chunks:
                    if waiting and submit is None:
                        submit = stack.enter_context(reading_processes(count))
                    future = None
                    if submit is not None:
                        with suppress(CannotBeSent):
                            future = submit(read_examples, reader, *_examples_and_lines(chunk))
                    waiting.append((chunk, future))
                    if len(waiting) > most_waiting:
                        yield _read(reader, *waiting.popleft())
            except TreememError as error:
                problem = error
            while waiting:
                yield _read(reader, *waiting.popleft())
    except BrokenProcessPool as error:
        died = "a process that reads records died: it was killed, ran out of memory or crashed"
        raise RecipeError(f"{died}; free some memory, or read in one process with processes=1") from error
    if problem is not None:
        raise problem


def _read(reader: RecordReader, chunk: Chunk, future: Future[ReadExamples] | None) -> tuple[Chunk, ReadExamples]:
    if future is not None:
        with suppress(CannotBeSent):
            return chunk, future.result()
    return chunk, read_chunk(reader, chunk)


def read_chunk(reader: RecordReader, chunk: Chunk) -> ReadExamples:
    """Read the examples of a chunk in this process."""
    return read_examples(reader, *_examples_and_lines(chunk))


def _examples_and_lines(chunk: Chunk) -> tuple[list[Any], list[int]]:
    return [entry.example for entry in chunk.entries], [entry.line for entry in chunk.entries]
