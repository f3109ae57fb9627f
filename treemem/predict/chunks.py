"""Records on their way to a model: some thousands at a time, read in other processes where there are many."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import queue
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treemem.child_process import CannotBeSent, ChildProcess, ChildProcessDied
from treemem.errors import ParseError, TreememError
from treemem.trees.record_reader import Example, ReadExamples, RecordReader, read_examples
from treemem.trees.tree import Tree

CHUNK_RECORDS = 8192
"""Records of a chunk, at most."""

CHUNK_CHARACTERS = 1 << 22
"""Characters after which a chunk ends, however few its records: this bounds the memory that it takes."""

MOST_PROCESSES = 4
"""Processes that read records by default: so many keep the one that scores busy."""

_PART_CHARACTERS = 8  # what a node of a tree counts, or a number in a list, in characters


class Entry(NamedTuple):
    """One record to predict.

    Attributes:
        line: where it stands, from 1.
        id: what it calls itself, else ``line``.
        example: what is to be read; None where ``problem`` is set.
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
        num_done: how many of them, from the first, were written by a run before this one.
    """

    entries: Sequence[Entry]
    num_done: int = 0


def id_of(fields: Mapping[str, Any], line: int) -> Any:
    """The ``id`` of a record as JSON can hold it; its line where it has none."""
    given = fields.get("id")
    if isinstance(given, (np.generic, np.ndarray)):
        given = given.tolist()
    if given is None or (given != given) is True:  # NaN; what holds several values may compare them one by one
        return line
    if isinstance(given, (list, dict)):
        return json.dumps(given, ensure_ascii=False, default=str)
    is_plain = isinstance(given, (str, int)) or (isinstance(given, float) and abs(given) != float("inf"))
    return given if is_plain else str(given)


def example_of(record: Mapping[str, Any], reader: RecordReader) -> Mapping[str, Any]:
    """The fields of a record that an example is read from, and of the others the names, which messages tell."""
    needed = reader.example_fields
    return {name: record[name] if name in needed else None for name in record} if needed else record


def chunks_of(entries: Iterable[Entry]) -> Iterator[Chunk]:
    """The records in chunks, which depend on the records alone. Where reading on fails, the last one ends there."""
    remaining = iter(entries)
    chunk: list[Entry] = []
    characters = 0
    while True:
        try:
            entry = next(remaining, None)
        except TreememError:
            if chunk:
                yield Chunk(chunk)
            raise
        if entry is None:
            break
        chunk.append(entry)
        characters += _characters(entry)
        if len(chunk) == CHUNK_RECORDS or characters >= CHUNK_CHARACTERS:
            yield Chunk(chunk)
            chunk, characters = [], 0
    if chunk:
        yield Chunk(chunk)


def _characters(entry: Entry) -> int:
    """About how much room a record takes, in characters; of what is no text no more is counted than ends a chunk."""
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
    """Read the examples of chunks, in order; a single chunk is read in this process.

    Args:
        reader: of the task.
        chunks: where going on fails, the chunks before that are read first.
        processes: how many read at once; 1: this one alone, None: as the machine has cores.
    """
    remaining = iter(chunks)
    problems: list[TreememError] = []

    def given() -> Chunk | None:
        try:
            return None if problems else next(remaining, None)
        except TreememError as problem:
            problems.append(problem)
            return None

    count = _available_cores() if processes is None else processes
    first = given()
    second = given() if count > 1 else None
    following = itertools.chain(filter(None, [first, second]), iter(given, None))
    if count > 1 and second is not None and _can_be_sent(reader):
        yield from _read_elsewhere(reader, following, count)
    else:
        for chunk in following:
            yield chunk, _read(reader, chunk)
    if problems:
        raise problems[0]


def _read_elsewhere(
    reader: RecordReader, chunks: Iterator[Chunk], processes: int
) -> Iterator[tuple[Chunk, ReadExamples]]:
    """Read in child processes, each of which a thread waits for; a chunk that cannot be sent there is read here."""
    idle: queue.SimpleQueue[ChildProcess] = queue.SimpleQueue()

    def read(chunk: Chunk) -> ReadExamples | None:
        child = idle.get()
        try:
            return child.call(read_examples, reader, *_given(chunk))
        except CannotBeSent:
            return None
        except ChildProcessDied as error:
            remedy = "free some memory, or read in one process (processes=1)"
            raise ChildProcessDied(f"{error}; {remedy}") from error
        finally:
            idle.put(child)

    def finished() -> tuple[Chunk, ReadExamples]:
        chunk, future = waiting.popleft()
        found = future.result()
        return chunk, _read(reader, chunk) if found is None else _whole(chunk, found)

    waiting: deque[tuple[Chunk, Future[ReadExamples | None]]] = deque()
    with ThreadPoolExecutor(processes, "treemem-reading") as threads, ExitStack() as children:
        try:
            for _ in range(processes):
                idle.put(children.enter_context(ChildProcess("reads records")))
            for chunk in chunks:
                waiting.append((chunk, threads.submit(read, chunk)))
                if len(waiting) > 2 * processes:
                    yield finished()
            while waiting:
                yield finished()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _read(reader: RecordReader, chunk: Chunk) -> ReadExamples:
    return _whole(chunk, read_examples(reader, *_given(chunk)))


def _given(chunk: Chunk) -> tuple[list[Example], list[int]]:
    """The examples of a chunk that can be read, and their lines."""
    given = [(entry.example, entry.line) for entry in chunk.entries if entry.example is not None]
    return [example for example, _ in given], [line for _, line in given]


def _whole(chunk: Chunk, read: ReadExamples) -> ReadExamples:
    """The same with places among all entries of the chunk."""
    if all(entry.example is not None for entry in chunk.entries):
        return read
    place = [place for place, entry in enumerate(chunk.entries) if entry.example is not None]
    errors = {place[number]: error for number, error in read.errors.items()}
    return ReadExamples(read.forest, [place[number] for number in read.places], errors)


def _available_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(MOST_PROCESSES, len(affinity(0)) if affinity else os.cpu_count() or 1)


def _can_be_sent(reader: RecordReader) -> bool:
    """Whether another process can be given it: classes of the running program are known to that alone."""
    try:
        return b"__main__" not in pickle.dumps(reader)
    except (pickle.PicklingError, TypeError, AttributeError):
        return False
