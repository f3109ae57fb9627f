"""Predict files of records into files of answers: one answer for each record, even after an interruption."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from treemem.errors import CellError, ParseError, RecipeError, TreememError, VocabularyError, near_names
from treemem.model import Model
from treemem.model_digest import model_digest
from treemem.predict.chunks import Chunk, Entry, chunks_of, example_of, id_of
from treemem.predict.graphs import read_graphs
from treemem.predict.partial_output import PartialOutput
from treemem.predict.predictor import FIELDS, TreePredictor
from treemem.records import (
    FORMATS,
    check_writable,
    format_of,
    is_packed,
    json_line,
    locked,
    read_records,
    write_records,
)
from treemem.trees.forest import Forest
from treemem.trees.record_reader import RecordReader
from treemem.trees.tree import Tree

INPUT_FORMATS = (*FORMATS, "dgl")
"""Formats of input: those of :mod:`treemem.records`, and files of ``dgl.save_graphs``, named ``.bin``."""


@dataclass(frozen=True)
class PredictionCounts:
    """How the records of a file were answered.

    Attributes:
        records: number of records, and of answers in the output.
        predicted: how many have a prediction.
        rejected: how many have an error.
        seconds: how long it took, since the last resumption.
        was_complete: whether the output existed already, for whatever model and input, and nothing was done.
    """

    records: int
    predicted: int
    rejected: int
    seconds: float
    was_complete: bool = False


def predict_file(
    predictor: TreePredictor | Model | str | os.PathLike[str],
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    output_format: str | None = None,
    strict: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    threshold: float | None = None,
) -> PredictionCounts:
    """Predict every record of a file.

    The output has one record for each record of the input, in order, with the fields ``id``, ``prediction``,
    ``probability`` and ``error``, as :class:`TreePredictor` says. Files of any size are read and written some thousands
    of records at a time. Until all answers are there, they stand as JSONL in ``<output>.partial``, from where
    ``resume`` continues.

    Args:
        predictor: a predictor, or what to make one of.
        input: a path, or ``"-"`` for standard input. Text lines, CSV, JSONL or Parquet, also ``.gz``; or ``.bin``:
            graphs of ``dgl.save_graphs`` that each hold an example's trees, or batches of them, with labels of the
            model's vocabulary.
        output: a path, or ``"-"`` for standard output, where answers appear as they are made. The target of a link is
            written in place of the link.
        format: of the input, one of ``INPUT_FORMATS``; told from the name by default, ``"text"`` for standard input.
        output_format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default; ``"jsonl"``
            for standard output.
        strict: raise the error of the first bad record.
        resume: continue a run that was cut off. Begins a new run if there is none, and leaves a complete output as it
            is, for whatever model and input.
        overwrite: begin anew, and replace an existing output when the new one is complete; a run that resumes such a
            run does so too.
        progress: show a progress bar; by default on a terminal only.
        threshold: in place of the predictor's.

    Raises:
        RecipeError: the input does not exist, changes while it is read, or its format cannot be told; the output exists
            or cannot be written, or another process writes it; or the run to resume has another model, threshold, batch
            size, device or input.
        ParseError: the input as a whole is damaged. The answers before that are in ``<output>.partial``.
        TreememError: of the first bad record, if ``strict``.
        CheckpointError: the model cannot be loaded.
    """
    begin = time.perf_counter()
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    to_standard_output = os.fspath(output) == "-"
    wanted = format_of(os.fspath(output), output_format or ("jsonl" if to_standard_output else None))
    given = _input_format(os.fspath(input), format)
    if to_standard_output:
        if resume:
            raise RecipeError("standard output cannot be resumed; name a file as output")
        run = _Run(predictor, input, given, strict=strict, progress=progress, threshold=threshold)
        write_records("-", run.answers(), format=wanted, fields=FIELDS)
        return run.counts(begin)
    place = check_writable(output, overwrite=True)
    _check_not_input(place, input)
    with locked(place, wait=False):
        is_begun = PartialOutput.is_begun(place)
        if resume and place.exists() and not is_begun:
            return _counts_of(Path(output), wanted, begin)
        check_writable(output, overwrite=resume or overwrite)
        if is_begun and not (resume or overwrite):
            raise RecipeError(
                f"{output}.partial holds the answers of a run that was cut off; go on with it with resume (--resume), "
                "or begin anew with overwrite (--overwrite)"
            )
        run = _Run(predictor, input, given, strict=strict, progress=progress, threshold=threshold)
        with PartialOutput(place, run.depends_on(), resume=resume, overwrite=overwrite) as partial:
            run.write_to(partial, wanted)
            partial.finish(wanted, FIELDS, packed=is_packed(os.fspath(output)))
    return run.counts(begin)


class _Run:
    """One pass over an input."""

    def __init__(
        self,
        predictor: TreePredictor | Model | str | os.PathLike[str],
        source: str | os.PathLike[str],
        format: str,
        *,
        strict: bool,
        progress: bool | None,
        threshold: float | None,
    ) -> None:
        self.source, self.format = os.fspath(source), format
        self._size = self._input_size()
        self.predictor = predictor if isinstance(predictor, TreePredictor) else TreePredictor(predictor)
        if threshold is not None:
            self.predictor = self.predictor.with_threshold(threshold)
        self.strict, self.progress = strict, progress
        self.records, self.rejected = 0, 0
        self._answered = hashlib.blake2b(digest_size=16)

    def counts(self, begin: float) -> PredictionCounts:
        """The counts of a run that began at ``begin`` and is over."""
        return PredictionCounts(self.records, self.records - self.rejected, self.rejected, time.perf_counter() - begin)

    def _input_size(self) -> int | None:
        """The size of the input if that is a file."""
        try:
            found = None if self.source == "-" else Path(self.source).stat()
            return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None
        except OSError as error:
            raise RecipeError(f"cannot read {self.source}: {error.strerror}") from error

    def depends_on(self) -> dict[str, Any]:
        """What the answers depend on."""
        return {
            "model": model_digest(self.predictor.model),
            "threshold": self.predictor.threshold,
            "input_file": Path(self.source).name,
            "size_of_the_input_file": self._size,
            "input_format": self.format,
            "batch_size": self.predictor.batch_size,
            "cache_bytes": self.predictor.cache_bytes,
            "most_nodes": self.predictor.reader.most_nodes,
            "device": self.predictor.model.device.type,
        }

    def answers(self) -> Iterator[dict[str, Any]]:
        """The answers for all records."""
        with closing(self._chunks_with_answers(chunks_of(self._entries()))) as chunks:
            for chunk, answers in chunks:
                yield from self._counted(chunk, answers)

    def write_to(self, partial: PartialOutput, format: str) -> None:
        """Add the answers that are not there yet."""
        with closing(self._chunks_with_answers(self._not_done(chunks_of(self._entries()), partial))) as chunks:
            for chunk, answers in chunks:
                lines: list[str] = []
                rejected = self.rejected
                try:
                    for answer in self._counted(chunk, answers):
                        _check_id(answer["id"], format)
                        lines.append(json_line(answer))
                finally:
                    answered = chunk.entries[chunk.num_done : chunk.num_done + len(lines)]
                    partial.append(
                        "".join(lines).encode(),
                        count=len(lines),
                        rejected=self.rejected - rejected,
                        digest=self._digest(answered),
                    )

    def _chunks_with_answers(
        self, chunks: Iterable[Chunk]
    ) -> Generator[tuple[Chunk, list[dict[str, Any]]], None, None]:
        from tqdm import tqdm

        disable = None if self.progress is None else not self.progress
        processes = 1 if self.format == "dgl" else self.predictor.processes
        with tqdm(desc="predicting", unit=" records", disable=disable, dynamic_ncols=True, leave=False) as bar:
            for chunk, answers in self.predictor.answers(chunks, processes):
                bar.update(len(answers))
                yield chunk, answers[chunk.num_done :]

    def _counted(self, chunk: Chunk, answers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The answers, counted; with ``strict`` up to the first error, which is raised."""
        for entry, answer in zip(chunk.entries[chunk.num_done :], answers, strict=True):
            if answer["error"] is not None:
                if self.strict:
                    raise self._error(entry, answer["error"])
                self.rejected += 1
            self.records += 1
            yield answer

    def _error(self, entry: Entry, told: str) -> TreememError:
        """The error of a record, with its place."""
        problem = self.predictor.problem_of(entry)
        if isinstance(problem, (ParseError, VocabularyError)):
            return problem.at(entry.line, self.source)
        return type(problem or CellError())(f"{self.source}, {told}")

    def _digest(self, answered: Sequence[Entry]) -> str:
        """A digest of all records that are answered; these are the last of them."""
        self._answered.update("".join(map(_spelled, answered)).encode("utf-8", errors="backslashreplace"))
        return self._answered.hexdigest()

    def _not_done(self, chunks: Iterator[Chunk], partial: PartialOutput) -> Iterator[Chunk]:
        """The chunks whose answers are not all there, each with the same records as in the earlier run."""
        remaining = partial.num_lines
        self.records, self.rejected = remaining, partial.num_rejected
        for chunk in chunks:
            num_done = min(remaining, len(chunk.entries))
            remaining -= num_done
            digest = self._digest(chunk.entries[:num_done])
            if num_done and not remaining and digest != partial.digest:
                break
            if num_done < len(chunk.entries):
                yield replace(chunk, num_done=num_done)
        else:
            if not remaining:
                return
        raise RecipeError(
            f"cannot resume {partial.path}: {self.source} has changed within its first {partial.num_lines} records; "
            "begin anew with overwrite (--overwrite)"
        )

    def _entries(self) -> Iterator[Entry]:
        """The records of the input.

        Raises:
            RecipeError: at the end, if the size of the input has changed since the beginning.
        """
        reader = self.predictor.reader
        if self.format == "dgl":
            model = self.predictor.model
            trees_per_example = model.task.examples(Forest.from_trees([])).trees_per_example
            yield from read_graphs(self.source, model.vocabulary.labels, reader, trees_per_example)
        else:
            yield from _record_entries(self.source, self.format, reader)
        size = self._input_size()
        if size != self._size:
            raise RecipeError(
                f"{self.source} changed while it was read: it had {self._size} bytes and now has {size}; wait until it "
                "is complete, and begin anew with overwrite (--overwrite)"
            )


def _spelled(entry: Entry) -> str:
    """A record as a text that no other record has."""
    line, identity, example, problem = entry
    if isinstance(example, str):  # a text line, which has no line end
        return f"{line} {identity} {example}\n"
    return repr((line, identity, str(example) if isinstance(example, Tree) else example, problem))


def _record_entries(source: str, format: str, reader: RecordReader) -> Iterator[Entry]:
    needed = reader.example_fields
    columns = ("id", *needed) if needed else None
    records = read_records(
        source, format=format, text_fields=reader.text_fields, one_of=needed, columns=columns, strict=False
    )
    may_be_header = True
    for record in records:
        if record.error is not None:
            may_be_header = False
            yield Entry(record.line, id_of(record.fields, record.line), None, record.error.at(record.line))
        elif format == "text":
            parts = tuple(record.fields.values())
            if not (may_be_header and reader.is_header(parts)):
                yield Entry(record.line, record.line, "\t".join(parts))
            may_be_header = may_be_header and not any(part.strip() for part in parts)
        else:
            yield Entry(record.line, id_of(record.fields, record.line), example_of(record.fields, reader))


def _input_format(name: str, format: str | None) -> str:
    if format is None and name.lower().endswith(".bin"):
        return "dgl"
    if format is not None and format not in INPUT_FORMATS:
        known = ", ".join(INPUT_FORMATS)
        raise RecipeError(f"no format {format!r}; known are {known}{near_names(format, INPUT_FORMATS)}")
    if format == "dgl" and name == "-":
        raise RecipeError("graphs of DGL cannot come from standard input; name a file")
    return "dgl" if format == "dgl" else format_of(name, format)


def _check_not_input(output: Path, source: str | os.PathLike[str]) -> None:
    """Raise a RecipeError if the run would write its input."""
    if os.fspath(source) != "-" and Path(source).exists():
        for written in (output, *PartialOutput.files_of(output)):
            if written.exists() and written.samefile(source):
                raise RecipeError(f"{written} is the input, and would be written; choose another output")


def _counts_of(output: Path, format: str, begin: float) -> PredictionCounts:
    """The counts of a complete output."""
    records = rejected = 0
    for record in read_records(output, format=format, text_fields=FIELDS):
        records += 1
        rejected += bool(record.fields.get("error"))
    return PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin, was_complete=True)


def _check_id(identity: object, format: str) -> None:
    """Raise a RecipeError at once, and not when all is done, for an id that a line of text cannot hold."""
    if format == "text" and isinstance(identity, str) and any(character in identity for character in "\t\r\n"):
        raise RecipeError(f"the id {identity!r:.100} has a tab or line end; write CSV or JSONL instead of text")
