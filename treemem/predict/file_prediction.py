"""Predict files of records: one answer for each record, even after an interruption."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from treemem.data.examples import Examples
from treemem.errors import CellError, ParseError, RecipeError, TreememError, VocabularyError, shown
from treemem.model import Model
from treemem.model_digest import model_digest
from treemem.predict.chunks import Chunk, Entry, chunks_of, example_of, id_of
from treemem.predict.graphs import read_graphs
from treemem.predict.partial_output import PartialOutput, with_lists_as_text
from treemem.predict.predictor import FIELDS, TreePredictor
from treemem.progress_bar import progress_bar
from treemem.records import (
    check_unchanged,
    check_writable,
    format_of,
    is_packed,
    json_line,
    locked,
    read_records,
    source_size,
    write_records,
)
from treemem.trees.forest import Forest
from treemem.trees.formats.forms import TextForm
from treemem.trees.formats.record_reader import RecordReader, first_refused
from treemem.trees.formats.text_forms import checked_form
from treemem.trees.formats.tree_files import texts_of


@dataclass(frozen=True)
class PredictionCounts:
    """How the records of a file were answered.

    Attributes:
        records: number of records, and of answers in the output.
        predicted: number of records with a prediction.
        rejected: number of records with an error.
        seconds: time since the start or the last resumption.
        was_complete: whether the output existed already and nothing was done.
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
    form: TextForm | None = None,
    output_format: str | None = None,
    strict: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    threshold: float | None = None,
) -> PredictionCounts:
    """Predict every record of a file.

    The output has one answer for each record of the input, in the same order, with the fields ``id``, ``prediction``,
    ``probability``, ``error``, ``warning`` and, if the predictor explains, ``explanation`` (see
    :class:`TreePredictor`). A file of any size needs little memory, because a few thousand records are processed at a
    time. Until the output is complete, its answers are in ``<output>.partial``; ``resume`` continues from there.

    Args:
        predictor: a predictor, a model, or the name or folder of a checkpoint.
        input: a path, or ``"-"`` for standard input. Text lines, CSV, JSONL or Parquet, also ``.gz``; or ``.bin``:
            graphs of ``dgl.save_graphs`` that each hold the trees of one or more examples, with labels of the model's
            vocabulary.
        output: a path, or ``"-"`` for standard output. If it is a link, its target is written.
        format: format of the input: ``"text"``, ``"csv"``, ``"jsonl"``, ``"parquet"`` or ``"dgl"``. By default the
            ending of the name decides; ``"text"`` for standard input.
        form: the input is a file of trees in this form (:func:`~treemem.trees.read_trees`), and not of records. The
            ``id`` of a tree is the line on which it begins.
        output_format: format of the output, except ``"dgl"``. By default the ending of the name decides; ``"jsonl"``
            for standard output.
        strict: raise the error of the first bad record.
        resume: continue an interrupted run. Without one, start a new run. A complete output is kept; its model and
            input are not checked.
        overwrite: start over, and replace an existing output when the new one is complete. This also holds when the run
            is interrupted and resumed.
        progress: show a progress bar; by default only on a terminal.
        threshold: replaces the threshold of the predictor.

    Returns:
        PredictionCounts: the numbers of records, of predictions and of bad records.

    Raises:
        RecipeError: the input does not exist or changes while it is read; a format is unknown; the output exists,
            cannot be written, or is being written by another process; or the run to resume has another model,
            threshold, batch size, device or input.
        ParseError: the input is damaged. The answers before the damage are in ``<output>.partial``.
        TreememError: the error of the first bad record, with ``strict``.
        CheckpointError: the model cannot be loaded.
    """
    begin = time.perf_counter()
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    to_standard_output = os.fspath(output) == "-"
    wanted = format_of(os.fspath(output), output_format or ("jsonl" if to_standard_output else None))
    given = _input_format(os.fspath(input), format, form)
    if to_standard_output:
        if resume:
            raise RecipeError("standard output cannot be resumed; name a file as output")
        run = _Run(predictor, input, given, strict=strict, progress=progress, threshold=threshold)
        with closing(run.answers(chunks_of(run.entries()))) as parts:
            answers: Iterable[dict[str, Any]] = (answer for _, part in parts for answer in part)
            answers = answers if wanted == "jsonl" else map(with_lists_as_text, answers)
            write_records("-", answers, format=wanted, fields=run.predictor.fields)
        return run.counts(begin)
    place = check_writable(output, overwrite=True, source=input)
    with locked(place, wait=False):
        is_interrupted = PartialOutput.exists(place)
        if resume and place.exists() and not is_interrupted:
            return _counts_of(Path(output), wanted, getattr(predictor, "fields", FIELDS), begin)
        check_writable(output, overwrite=resume or overwrite)
        if is_interrupted and not (resume or overwrite):
            raise RecipeError(
                f"{output}.partial holds the answers of an interrupted run; continue it with resume=True, or "
                "start over with overwrite=True"
            )
        run = _Run(predictor, input, given, strict=strict, progress=progress, threshold=threshold)
        with PartialOutput(place, run.settings(), resume=resume, overwrite=overwrite) as partial:
            run.write_to(partial, wanted)
            partial.finish(wanted, run.predictor.fields, packed=is_packed(os.fspath(output)))
    return run.counts(begin)


def _input_format(name: str, format: str | None, form: TextForm | None) -> str:
    """Return the format of the input, or ``"trees:FORM"``.

    Raises:
        RecipeError: it does not exist, or both a format and a form are given.
    """
    if form is None:
        return (
            "dgl" if format == "dgl" or (format is None and name.lower().endswith(".bin")) else format_of(name, format)
        )
    checked_form(form)
    if format is not None:
        raise RecipeError("format is that of a file of records, and form that of a file of trees; choose one")
    return f"{_TREES}{form}"


_TREES = "trees:"


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
        self._size = source_size(self.source)
        self.predictor = predictor if isinstance(predictor, TreePredictor) else TreePredictor(predictor)
        if threshold is not None:
            self.predictor = self.predictor.with_threshold(threshold)
        self.strict, self.progress = strict, progress
        self.records, self.rejected = 0, 0
        self._answered = hashlib.blake2b(digest_size=16)

    def counts(self, begin: float) -> PredictionCounts:
        """Return the counts of a complete run that started at ``begin``."""
        return PredictionCounts(self.records, self.records - self.rejected, self.rejected, time.perf_counter() - begin)

    def settings(self) -> dict[str, Any]:
        """Return everything that the answers depend on."""
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
            "explanation": self.predictor.explain,
            "explained_answer": None if self.predictor.explain_answer is None else str(self.predictor.explain_answer),
        }

    def answers(self, chunks: Iterator[Chunk]) -> Generator[tuple[Sequence[Entry], list[dict[str, Any]]], None, None]:
        """Yield the records of each chunk that had no answers yet, with their answers.

        Raises:
            TreememError: the error of the first bad record, with ``strict``, after the answers before it.
        """
        has_trees = self.format == "dgl" or self.format.startswith(_TREES)
        processes = 1 if has_trees else self.predictor.processes
        with (
            progress_bar(None, "predicting", self.progress, unit="records") as bar,
            closing(self.predictor.answers(chunks, processes)) as answered,
        ):
            for chunk, answers in answered:
                bar.update(len(answers))
                entries, answers = chunk.entries[chunk.num_done :], answers[chunk.num_done :]
                bad = [place for place, answer in enumerate(answers) if answer["error"] is not None]
                end = bad[0] if bad and self.strict else len(answers)
                self.records += end
                self.rejected += 0 if self.strict else len(bad)
                yield entries[:end], answers[:end]
                if end < len(answers):
                    raise self._error(entries[end], answers[end]["error"])

    def write_to(self, partial: PartialOutput, format: str) -> None:
        """Add the missing answers."""
        self.records, self.rejected = partial.num_lines, partial.num_rejected
        with closing(self.answers(self._remaining(chunks_of(self.entries()), partial))) as parts:
            for entries, answers in parts:
                for answer in answers:
                    _check_id(answer["id"], format)
                partial.append(
                    "".join(map(json_line, answers)).encode(),
                    count=len(answers),
                    rejected=self.rejected - partial.num_rejected,
                    digest=self._digest(entries),
                )

    def _error(self, entry: Entry, message: str) -> TreememError:
        """Return the error of a record, with its place."""
        problem = self.predictor.problem_of(entry)
        if isinstance(problem, (ParseError, VocabularyError)):
            return problem.at(entry.line, self.source)
        return type(problem or CellError())(f"{self.source}, {message}")

    def _digest(self, entries: Sequence[Entry]) -> str:
        """Return a digest of all answered records, of which ``entries`` are the last ones."""
        for line, identity, example, problem in entries:
            try:
                text = f"{line} {identity} {problem or example}\n"
            except RecursionError:  # of data that are nested almost too deep to read
                text = f"{line} {identity}\n"
            self._answered.update(text.encode(errors="backslashreplace"))
        return self._answered.hexdigest()

    def _remaining(self, chunks: Iterator[Chunk], partial: PartialOutput) -> Iterator[Chunk]:
        """Yield the chunks with unanswered records.

        Raises:
            RecipeError: the records that are answered have changed.
        """
        remaining = partial.num_lines
        for chunk in chunks:
            num_done = min(remaining, len(chunk.entries))
            remaining -= num_done
            digest = self._digest(chunk.entries[:num_done])
            if num_done and not remaining and digest != partial.digest:
                remaining = num_done
                break
            if num_done < len(chunk.entries):
                yield replace(chunk, num_done=num_done)
        if remaining:
            raise RecipeError(
                f"cannot resume {partial.path}: the first {partial.num_lines} records of {self.source} have changed; "
                "start over with overwrite=True"
            )

    def entries(self) -> Iterator[Entry]:
        """Yield the records of the input.

        Raises:
            RecipeError: at the end, if the size of the input has changed.
        """
        reader = self.predictor.reader
        if self.format == "dgl":
            model = self.predictor.model
            trees_per_example = model.task.examples(Forest.from_trees([])).trees_per_example
            yield from read_graphs(self.source, model.vocabulary.labels, reader, trees_per_example)
        elif self.format.startswith(_TREES):
            yield from _tree_entries(self.source, self.format.removeprefix(_TREES), reader)
        else:
            yield from _record_entries(self.source, self.format, reader)
        check_unchanged(self.source, self._size)


def record_ids(source: str, reader: RecordReader, format: str | None = None) -> list[Any]:
    """Return the ids of the records of a file, as :func:`predict_file` writes them."""
    return [entry.id for entry in _record_entries(source, format_of(source, format), reader)]


def check_labels(model: Model, forest: Forest, source: str, format: str | None = None) -> None:
    """Check that a model knows the labels of the examples that its task read from a file, and takes their length.

    Raises:
        VocabularyError: an unknown label; the message names file and line.
        GraphError: an example that is too long for the network; likewise.
    """
    examples = model.task.examples_to_predict(forest)
    if not isinstance(examples, Examples):
        return
    check = partial(examples.check_vocabulary, model.vocabulary)
    refused = first_refused(len(examples), check) or model.first_too_long(examples)
    if refused is None:
        return
    place, error = refused
    lines = []
    if source != "-":
        entries = _record_entries(source, format_of(source, format), model.task.reader, skip_blank_lines=True)
        lines = [entry.line for entry in entries]
    problem = str(error)
    if examples.trees_per_example == 1:
        problem = problem.removeprefix("tree 1, ")
    name = "standard input" if source == "-" else source
    is_known = len(lines) == len(examples)
    if isinstance(error, VocabularyError) and is_known:
        raise VocabularyError(problem, line=lines[place], source=source)
    raise type(error)(f"{name}, {f'line {lines[place]}' if is_known else f'example {place + 1}'}: {problem}")


def _record_entries(
    source: str, format: str, reader: RecordReader, *, skip_blank_lines: bool = False
) -> Iterator[Entry]:
    needed = reader.example_fields
    columns = ("id", *needed) if needed else None
    records = read_records(
        source,
        format=format,
        text_fields=reader.text_fields,
        header_of=reader.header_of,
        one_of=needed,
        columns=columns,
        strict=False,
        skip_blank_lines=skip_blank_lines,
    )
    for record in records:
        if record.error is not None:
            yield Entry(record.line, id_of(record.fields, record.line), None, record.error.at(record.line))
        elif record.by_place:
            yield Entry(record.line, record.line, "\t".join(record.fields.values()))
        else:
            yield Entry(record.line, id_of(record.fields, record.line), example_of(record.fields, reader))


def _tree_entries(source: str, form: Any, reader: RecordReader) -> Iterator[Entry]:
    for line, text in texts_of(source, form):
        try:
            yield Entry(line, line, reader.tree_in(text, form))
        except TreememError as error:
            yield Entry(line, line, None, error)


def _counts_of(output: Path, format: str, fields: Sequence[str], begin: float) -> PredictionCounts:
    """Return the counts of a complete output."""
    records = rejected = 0
    for record in read_records(output, format=format, text_fields=fields):
        records += 1
        rejected += bool(record.fields.get("error"))
    return PredictionCounts(records, records - rejected, rejected, time.perf_counter() - begin, was_complete=True)


def _check_id(identity: object, format: str) -> None:
    """Raise a RecipeError for an id that a line of text cannot hold, before the work is done."""
    if format == "text" and isinstance(identity, str) and any(character in identity for character in "\t\r\n"):
        raise RecipeError(f"the id {shown(identity)} has a tab or line end; write CSV or JSONL instead of text")
