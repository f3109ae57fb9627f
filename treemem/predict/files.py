"""Files of records in, files of predictions out: one answer for each record, whatever happens in between."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from treemem.errors import CellError, ParseError, RecipeError, TreememError, VocabularyError, near_names
from treemem.model import Model
from treemem.predict.chunks import Chunk, Entry, chunks_of, example_of, id_of
from treemem.predict.graphs import read_graphs
from treemem.predict.partial_output import PartialOutput
from treemem.predict.predictor import FIELDS, TreePredictor
from treemem.records import FORMATS, checked_place, format_of, is_packed, json_line, read_records, write_records
from treemem.trees.forest import Forest
from treemem.trees.record_reader import RecordReader
from treemem.trees.tree import Tree

INPUT_FORMATS = (*FORMATS, "dgl")
"""Formats of input: those of :mod:`treemem.records`, and files of ``dgl.save_graphs``, named ``.bin``."""


@dataclass(frozen=True)
class PredictionCounts:
    """What became of the records of a file.

    Attributes:
        records: how many there were; as many answers are in the output.
        predicted: how many have a prediction.
        rejected: how many have an error.
        seconds: how long it took; of a run that was resumed, since then.
        was_complete: whether the output was there before, of whatever model and input, and nothing was done.
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

    The output has one record for each of the input, in order, of the fields ``id``, ``prediction``, ``probability`` and
    ``error``, as :class:`TreePredictor` says. Files of any size are read and written some thousands of records at a
    time. Until all are there, the answers stand as JSONL in ``<output>.partial``, from where ``resume`` goes on.

    Args:
        predictor: a predictor, or what to make one of.
        input: a path, or ``"-"`` for standard input. Text lines, CSV, JSONL or Parquet, also ``.gz``; or ``.bin``:
            graphs of ``dgl.save_graphs`` that hold an example's trees each, or batches of them, with labels of the
            model's vocabulary.
        output: a path, or ``"-"`` for standard output, where answers appear as they are made. Where it is a link, the
            file that it leads to is written.
        format: of the input, one of ``INPUT_FORMATS``; told from the name by default, ``"text"`` for standard input.
        output_format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default; ``"jsonl"``
            for standard output.
        strict: raise the error of the first bad record.
        resume: go on with a run that was cut off; begin where there is none, and leave a complete output as it is,
            whatever model and input it is of.
        overwrite: begin anew, and replace an output that is there when the new one is complete; so does what is
            resumed of such a run.
        progress: show a progress bar; by default on a terminal only.
        threshold: in place of the predictor's.

    Raises:
        RecipeError: no such file, a format that cannot be told, an output that exists or has appeared meanwhile, or
            one that cannot be written; a run to resume that was begun with another model, threshold, batch size,
            device or input.
        ParseError: the input as a whole is damaged; the answers before that are in ``<output>.partial``.
        TreememError: with ``strict``, of the first bad record.
        CheckpointError: the model cannot be loaded.
    """
    begin = time.perf_counter()
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    to_standard_output = os.fspath(output) == "-"
    wanted = format_of(os.fspath(output), output_format or ("jsonl" if to_standard_output else None))
    given = _input_format(os.fspath(input), format)
    if to_standard_output and resume:
        raise RecipeError("standard output cannot be resumed; name a file as output")
    place = None if to_standard_output else checked_place(output)
    if place is not None and _is_complete(place, input, resume=resume, overwrite=overwrite):
        return _counts_of(Path(output), wanted, begin)
    if not isinstance(predictor, TreePredictor):
        predictor = TreePredictor(predictor)
    if threshold is not None:
        predictor = predictor.with_threshold(threshold)
    run = _Run(predictor, input, given, strict=strict, progress=progress)
    if place is None:
        write_records("-", run.answers(), format=wanted, fields=FIELDS)
    else:
        with PartialOutput(place, run.depends_on(), resume=resume, overwrite=overwrite) as partial:
            run.write_to(partial, wanted)
            partial.finish(wanted, FIELDS, packed=is_packed(os.fspath(output)))
    return PredictionCounts(run.records, run.records - run.rejected, run.rejected, time.perf_counter() - begin)


class _Run:
    """One pass over an input."""

    def __init__(
        self,
        predictor: TreePredictor,
        source: str | os.PathLike[str],
        format: str,
        *,
        strict: bool,
        progress: bool | None,
    ) -> None:
        self.predictor, self.source, self.format = predictor, os.fspath(source), format
        self.strict, self.progress = strict, progress
        self.records, self.rejected = 0, 0
        self._answered = hashlib.blake2b(digest_size=16)

    def depends_on(self) -> dict[str, Any]:
        """What the answers depend on."""
        is_file = self.source != "-"
        try:
            size = Path(self.source).stat().st_size if is_file else None
        except OSError as error:
            raise RecipeError(f"cannot read {self.source}: {error.strerror}") from error
        return {
            "weights": model_digest(self.predictor.model),
            "threshold": self.predictor.threshold,
            "input": Path(self.source).name,
            "input_bytes": size,
            "input_format": self.format,
            "batch_size": self.predictor.batch_size,
            "cache_bytes": self.predictor.cache_bytes,
            "device": self.predictor.model.device.type,
        }

    def answers(self) -> Iterator[dict[str, Any]]:
        """The answers for all records."""
        with closing(self._chunks_with_answers(chunks_of(self._entries()))) as chunks:
            for chunk, answers in chunks:
                yield from self._good(chunk, answers)

    def write_to(self, partial: PartialOutput, format: str) -> None:
        """Add the answers that are not there yet."""
        remaining = self._not_done(chunks_of(self._entries()), partial) if partial.num_lines else None
        with closing(self._chunks_with_answers(remaining or chunks_of(self._entries()))) as chunks:
            for chunk, answers in chunks:
                lines = []
                try:
                    for answer in self._good(chunk, answers):
                        _check_text(answer, format)
                        lines.append(json_line(answer))
                finally:
                    answered = chunk.entries[chunk.num_done : chunk.num_done + len(lines)]
                    partial.append("".join(lines).encode("utf-8"), len(lines), self._digest(answered))

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

    def _good(self, chunk: Chunk, answers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The answers, counted; with ``strict`` up to the first error, which is raised."""
        for entry, answer in zip(chunk.entries[chunk.num_done :], answers, strict=True):
            if answer["error"] is not None:
                if self.strict:
                    raise self._error(entry, answer["error"])
                self.rejected += 1
            self.records += 1
            yield answer

    def _error(self, entry: Entry, told: str) -> TreememError:
        """What is wrong with a record, told with its place."""
        problem = self.predictor.problem_of(entry)
        if isinstance(problem, (ParseError, VocabularyError)):
            return problem.at(entry.line, self.source)
        return type(problem or CellError())(f"{self.source}, {told}")

    def _digest(self, answered: Sequence[Entry]) -> str:
        """A digest of all records that are answered, these being the last of them."""
        self._answered.update("".join(map(_spelled, answered)).encode("utf-8", errors="backslashreplace"))
        return self._answered.hexdigest()

    def _not_done(self, chunks: Iterator[Chunk], partial: PartialOutput) -> Iterator[Chunk]:
        """The chunks whose answers are not all there, so that each holds the same records as in the run before."""
        before = partial.answers()
        for chunk in chunks:
            num_done = 0
            for entry, answer in zip(chunk.entries, before, strict=False):
                if answer["id"] != json.loads(json_line({"id": entry.id}))["id"]:
                    raise RecipeError(
                        f"cannot go on with {partial.path}: its record {self.records + 1} has the id {answer['id']!r}, "
                        f"and that of {self.source} has {entry.id!r}; begin anew with overwrite (--overwrite)"
                    )
                num_done += 1
                self.records += 1
                self.rejected += answer["error"] is not None
                if self.records == partial.num_lines:
                    break
            digest = self._digest(chunk.entries[:num_done])
            if self.records == partial.num_lines and digest != partial.digest:
                raise RecipeError(
                    f"cannot go on with {partial.path}: {self.source} has changed, within its first {self.records} "
                    "records; begin anew with overwrite (--overwrite)"
                )
            if num_done < len(chunk.entries):
                yield replace(chunk, num_done=num_done)
                break
        yield from chunks
        if self.records < partial.num_lines:
            raise RecipeError(
                f"cannot go on with {partial.path}: it has {partial.num_lines} answers, and {self.source} has "
                f"{self.records} records; begin anew with overwrite (--overwrite)"
            )

    def _entries(self) -> Iterator[Entry]:
        reader = self.predictor.reader
        if self.format == "dgl":
            model = self.predictor.model
            return read_graphs(self.source, model.vocabulary.labels, reader, _trees_per_example(model))
        return _record_entries(self.source, self.format, reader)


def _spelled(entry: Entry) -> str:
    """A record as a text, which no other record has."""
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


def _is_complete(output: Path, source: str | os.PathLike[str], *, resume: bool, overwrite: bool) -> bool:
    """Whether the output is there and complete, and is to stay.

    Raises:
        RecipeError: it must not be written.
    """
    if os.fspath(source) != "-" and Path(source).exists():
        for written in (output, *PartialOutput.files_of(output)):
            if written.exists() and written.samefile(source):
                raise RecipeError(f"{written} is the input, and would be written; choose another output")
    exists, is_begun = output.exists(), PartialOutput.is_there(output)
    if exists and resume:
        return not is_begun
    if not (resume or overwrite):
        if exists:
            raise RecipeError(
                f"{output} exists; choose another name, or replace it with overwrite (--overwrite), or finish what was "
                "cut off with resume (--resume)"
            )
        if is_begun:
            raise RecipeError(
                f"{output}.partial holds the answers of a run that was cut off; go on with it with resume (--resume), "
                "or begin anew with overwrite (--overwrite)"
            )
    return False


def _counts_of(output: Path, format: str, begin: float) -> PredictionCounts:
    """The counts of a complete output."""
    records = rejected = 0
    for record in read_records(output, format=format, text_fields=FIELDS):
        records += 1
        rejected += bool(record.fields.get("error"))
    return PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin, was_complete=True)


def _check_text(answer: Mapping[str, Any], format: str) -> None:
    """Refuse at once, and not when all is done, an id that a line of text cannot hold.

    Raises:
        RecipeError: it has a tab or a line end.
    """
    identity = answer["id"]
    if format == "text" and isinstance(identity, str) and any(character in identity for character in "\t\r\n"):
        raise RecipeError(f"the id {identity!r:.100} has a tab or line end; write CSV or JSONL instead of text")


def _trees_per_example(model: Model) -> int:
    """How many trees an example of the task is run as."""
    return model.task.examples(Forest.from_trees([])).trees_per_example


def model_digest(model: Model) -> str:
    """What decides the probabilities, as SHA-256: weights, vocabulary, network and task."""
    about = {
        "task": [model.task.name, model.task.version, model.task.options],
        "network": [model.network.network, model.network.options],
        "vocabulary": model.vocabulary.digest,
        "temperature": model.temperature,
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
