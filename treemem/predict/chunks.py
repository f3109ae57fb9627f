"""Records on their way to a model: some thousands at a time, read in other processes if there are many."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treemem.errors import ParseError, RecipeError, TreememError
from treemem.reading_processes import CannotBeSent, reading_processes
from treemem.trees.record_reader import Example, ReadExamples, RecordReader, read_examples
from treemem.trees.tree import Tree

CHUNK_RECORDS = 8192
"""Records of a chunk, at most."""

CHUNK_CHARACTERS = 1 << 22
"""Characters after which a chunk ends, however few its records; this bounds its memory."""

MOST_PROCESSES = 4
"""Processes that read records by default: enough to keep the one that scores busy."""

_Future = Future[ReadExamples] | None
_PART_CHARACTERS = 8  # for a node of a tree, or a number in a list


class Entry(NamedTuple):
    """One record to predict.

    Attributes:
        line: its line, from 1.
        id: its own id, else ``line``.
        example: what is read; None if ``problem`` is set.
        problem: why the record could not be read at all.
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
        num_done: how many of them, from the first, an earlier run has answered.
    """

    entries: Sequence[Entry]
    num_done: int = 0


def id_of(fields: Mapping[str, Any], line: int) -> Any:
    """The ``id`` of a record as JSON can hold it; its line if it has no id."""
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
    """The record with None for the fields that no example is read from; messages tell their names."""
    needed = reader.example_fields
    return {name: record[name] if name in needed else None for name in record} if needed else record


def chunks_of(entries: Iterable[Entry]) -> Iterator[Chunk]:
    """The records in chunks, which depend only on the records. An error of ``entries`` comes after the last one."""
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
    """Roughly the size of a record in characters; counting stops at what ends a chunk."""
    example, count = entry.example, 0
    if isinstance(entry.id, str):
        count += len(entry.id)
    if isinstance(entry.problem, ParseError):
        count += len(entry.problem.text)
    for value in example.values() if isinstance(example, Mapping) else [example]:
        count += len(value) if isinstance(value, str) else _characters_of(value)
    return count


def _characters_of(value: object) -> int:
    count, remaining = 0, [] if value is None else [value]
    while remaining and count < CHUNK_CHARACTERS:
        part = remaining.pop()
        if isinstance(part, (str, bytes)):
            count += len(part)
            continue
        count += _PART_CHARACTERS * (part.size if isinstance(part, (Tree, np.ndarray)) else 1)
        if isinstance(part, Mapping):
            remaining += [*part, *part.values()]
        elif isinstance(part, (list, tuple)):
            remaining += part
    return count


def read_chunks(
    reader: RecordReader, chunks: Iterable[Chunk], processes: int | None
) -> Iterator[tuple[Chunk, ReadExamples]]:
    """Read the examples of chunks, in order.

    This process reads the first chunk, and those that cannot be sent to another process.

    Args:
        reader: of the task.
        chunks: if their iterator raises, the chunks before that are read first.
        processes: how many other processes read the other chunks; 1: none does; None: as many as the machine has cores.

    Raises:
        RecipeError: a process died.
    """
    count = _available_cores() if processes is None else processes
    most_waiting = 2 * count if count > 1 else 0
    remaining = iter(chunks)
    waiting: deque[tuple[Chunk, _Future]] = deque()
    end: Exception | None = None
    submit = None
    try:
        with ExitStack() as stack:
            while end is None or waiting:
                while end is None and len(waiting) <= most_waiting:
                    try:
                        chunk = next(remaining)
                    except (StopIteration, TreememError) as error:
                        end = error
                        break
                    if waiting and submit is None:
                        submit = stack.enter_context(reading_processes(count))
                    waiting.append((chunk, _submitted(submit, reader, chunk) if submit is not None else None))
                if waiting:
                    chunk, future = waiting.popleft()
                    yield chunk, _read(reader, chunk, future)
    except BrokenProcessPool as error:
        problem = "a process that reads records died: it was killed, ran out of memory or crashed"
        raise RecipeError(f"{problem}; free some memory, or read in one process (--processes 1)") from error
    if not isinstance(end, StopIteration):
        raise end


def _submitted(submit: Callable[..., Future[ReadExamples]], reader: RecordReader, chunk: Chunk) -> _Future:
    try:
        return submit(read_examples, reader, *_given(chunk))
    except CannotBeSent:
        return None


def _read(reader: RecordReader, chunk: Chunk, future: _Future) -> ReadExamples:
    if future is not None:
        try:
            return _whole(chunk, future.result())
        except CannotBeSent:
            pass
    return _whole(chunk, read_examples(reader, *_given(chunk)))


def _given(chunk: Chunk) -> tuple[list[Example], list[int]]:
    """The examples of a chunk, without bad records, and their lines."""
    given = [(entry.example, entry.line) for entry in chunk.entries if entry.example is not None]
    return [example for example, _ in given], [line for _, line in given]


def _whole(chunk: Chunk, read: ReadExamples) -> ReadExamples:
    """The same with places counted among all entries of the chunk."""
    if all(entry.example is not None for entry in chunk.entries):
        return read
    place = [place for place, entry in enumerate(chunk.entries) if entry.example is not None]
    errors = {place[number]: error for number, error in read.errors.items()}
    return ReadExamples(read.forest, [place[number] for number in read.places], errors)


def _available_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MOST_PROCESSES, len(affinity(0)) if affinity else os.cpu_count() or 1)
