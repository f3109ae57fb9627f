"""A trained model that predicts records, some of which may be bad."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem import checkpoint as checkpoints
from treemem.attribution import Method, check_explainable, explain_forest
from treemem.batch_graphs import GraphedModel, check_graphs
from treemem.checked_options import checked_count, checked_probability
from treemem.data.loader import BatchOptions
from treemem.errors import GraphError, ParseError, RecipeError, TreememError, VocabularyError
from treemem.model import Model, check_frame, is_data_frame
from treemem.native.threads import torch_threads
from treemem.networks.trees.row_cache import RowCache
from treemem.predict.chunks import Chunk, Entry, chunks_of, example_of, id_of, read_chunk, read_chunks
from treemem.records import check_columns
from treemem.task import Answer
from treemem.trees.bridges.dgl import forest_from_dgl
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import ReadExamples, find_refused, is_single_example, told_in_a_line

FIELDS = ("id", "prediction", "probability", "error", "warning")
"""The fields of an answer without an explanation."""

_NODE = re.compile(r"tree [0-9]+, (?=node )")


class TreePredictor:
    """Predicts records: one answer for each, in order. The answer for a bad record is an error message.

    A record is a text line of the task, a mapping with the fields that the task reads, a ``Tree``, a ``DGLGraph``, a
    sympy expression, or nested data (:func:`~treemem.trees.as_tree`). An answer has the fields ``id`` (the record's
    ``id``, or its place, from 1; in a file the line on which it begins), ``prediction``, ``probability``, ``error`` and
    ``warning``, which names labels of the record that no training example had, or that are read as unknown.
    For binary tasks, the prediction is 1 if P(label = 1) is above ``threshold``, else 0. For other tasks, it is the
    name of the most likely class (of two classes: the second one, if its probability is above ``threshold``), with its
    probability. ``error`` is None for a good record. A bad record has no
    prediction and no probability.

    A predictor is also an actor for Ray Data: a call takes columns and returns columns.

    Args:
        checkpoint: folder of a checkpoint or a run, name of a task with a packaged model, or a model.
        batch_size: number of examples that run together.
        threshold: threshold of the probability, for binary tasks, of the second one of two classes, and of each label
            of ``table_labels``; None: that of the model, which is 0.5 unless ``training.threshold`` chose another.
        device: where the model runs; by default the CPU, or the device of a given model.
        cache_bytes: memory for the states of subtrees that recur within a chunk of some thousand records; 0: none.
        cuda_graphs: run batches as CUDA graphs, without that memory; on CUDA, for the models that
            ``training.cuda_graphs`` trains. It has not run on a GPU yet.
        processes: number of other processes that read, if there is more than one chunk; 1: none; by default the number
            of cores, at most 4. The answers are the same.
        most_nodes: largest number of nodes of an example. A larger one is a bad record.
        explain: how to explain each prediction (:func:`treemem.explain`), as :meth:`Explanation.as_dict` in a further
            field ``explanation``; None: not. ``warning`` says why a prediction has no explanation.
        explain_answer: which answer to explain, as the argument ``answer`` of :func:`treemem.explain`.

    Attributes:
        fields: the fields of an answer.

    Raises:
        CheckpointError: the model does not exist or is damaged.
        RecipeError: a threshold that is not a probability, or that the task does not use; or a size below 1.

    Example:
        >>> predictor = TreePredictor("equation_verification")  # doctest: +SKIP
        >>> [answer["prediction"] for answer in predictor.predict(["x + y = y + x", "x ="])]  # doctest: +SKIP
        [1, None]
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | Model,
        *,
        batch_size: int = 1024,
        threshold: float | None = None,
        device: str | torch.device | None = None,
        cache_bytes: int = 2**28,
        cuda_graphs: bool = False,
        processes: int | None = None,
        most_nodes: int = 100_000,
        explain: Method | None = None,
        explain_answer: Any = None,
    ) -> None:
        self.batch_size = checked_count("batch_size", batch_size)
        self.cache_bytes = checked_count("cache_bytes", cache_bytes, least=0)
        self.processes = None if processes is None else checked_count("processes", processes)
        if isinstance(checkpoint, Model):
            self.model = checkpoint if device is None else checkpoint.to(device)
        else:
            self.model = checkpoints.load(checkpoint, device="cpu" if device is None else device)
        self._graphs = GraphedModel(self.model) if cuda_graphs else None
        self.threshold = self.model.usual_threshold
        if threshold is not None:
            self.threshold = _checked_threshold(threshold, self.model)
        if explain is not None:
            check_explainable(self.model, explain, explain_answer)
        elif explain_answer is not None:
            raise RecipeError("explain_answer has no effect without explain; choose a method, or leave it out")
        self.explain, self.explain_answer = explain, explain_answer
        self.fields = FIELDS if explain is None else (*FIELDS, "explanation")
        self.reader = copy.copy(self.model.task.reader)
        # A reader may be a frozen dataclass.
        object.__setattr__(self.reader, "most_nodes", checked_count("most_nodes", most_nodes))

    def with_threshold(self, threshold: float) -> TreePredictor:
        """Return the same predictor with another threshold."""
        other = copy.copy(self)
        other.threshold = _checked_threshold(threshold, self.model)
        return other

    def predict(self, records: Any) -> Any:
        """Yield an answer for each record. The first answers come after some thousand records are read.

        For a DataFrame, whose columns are the fields of the records, return a DataFrame with its index and the columns
        ``prediction``, ``probability``, ``error`` and ``warning``. Good rows have the error None. Bad rows have the
        prediction None and the probability NaN.

        Raises:
            RecipeError: ``records`` is a single record, or a DataFrame without the column of the examples or with equal
                names of columns or rows, since predictions joined to it could stand beside other rows.
        """
        if is_data_frame(records):
            check_frame(records, is_joined=True)
            columns = {name: records[name].to_numpy() for name in records.columns if name != "id"}
            answers = self(columns)
            del answers["id"]
            for number, (row, error) in enumerate(zip(records.index, answers["error"], strict=True)):
                if error is not None:
                    answers["error"][number] = f"row {row}{error.removeprefix(f'line {number + 1}')}"
            return type(records)(answers, index=records.index, dtype=object).astype({"probability": np.float64})
        if is_single_example(records):
            raise RecipeError("predict takes several records; put a single one in a list")
        chunks = self.answers(chunks_of(self._entries(records)), self.processes)
        return (answer for _, answers in chunks for answer in answers)

    def predict_one(self, record: Any) -> dict[str, Any]:
        """Return the answer to one record, the only one of ``predict([record])``; a bad record's answer has an error.

        Args:
            record: as one of :meth:`predict`; its ``id`` is 1 by default.
        """
        chunk = Chunk([*self._entries([record])])
        with torch_threads(1):
            return self._answers(chunk, read_chunk(self.reader, chunk))[0]

    def _entries(self, records: Iterable[Any]) -> Iterator[Entry]:
        """Yield the records as entries: a ``DGLGraph`` as the tree that its trees are joined to, a node as its tree."""
        reader = self.reader
        for line, record in enumerate(records, start=1):
            is_graph, is_mapping = hasattr(record, "in_degrees"), isinstance(record, Mapping)
            if is_mapping and reader.is_record(record):
                yield Entry(line, id_of(record, line), example_of(record, reader))
            elif is_graph or is_mapping:
                tree, problem = None, None
                try:
                    if is_graph:
                        tree = reader.joined(list(forest_from_dgl(record, self.model.vocabulary.labels)))
                    else:
                        tree = reader.tree_of(record)
                except TreememError as error:
                    problem = error
                yield Entry(line, line, tree, problem)
            else:
                yield Entry(line, line, record)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the answers as columns, for records whose fields are the columns of ``batch``, each ``[records]``.

        Text lines are a single column ``text``. This process reads the records. A bad record has the probability NaN.

        Raises:
            RecipeError: there is no column of the examples.
        """
        columns = {name: np.asarray(column).tolist() for name, column in batch.items()}
        lines = columns["text"] if list(columns) == ["text"] else None
        if lines is None:
            check_columns("the table", self.reader.example_fields, list(columns))
        records = lines or [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        chunks = chunks_of(self._entries(records))
        answers = [answer for _, part in self.answers(chunks, 1) for answer in part]
        by_name: dict[str, NDArray[Any]] = {}
        for name in self.fields:
            by_name[name] = np.empty(len(answers), object)
            by_name[name][:] = [answer[name] for answer in answers]
        by_name["probability"] = by_name["probability"].astype(np.float64)
        return by_name

    def answers(
        self, chunks: Iterable[Chunk], processes: int | None
    ) -> Generator[tuple[Chunk, list[dict[str, Any]]], None, None]:
        """Yield each chunk with the answers for all of its records."""
        for chunk, read in read_chunks(self.reader, chunks, processes):
            with torch_threads(1):
                answers = self._answers(chunk, read)
            yield chunk, answers

    def problem_of(self, entry: Entry) -> TreememError | None:
        """Return the error of a record. None if it is good, or if the network's output for it is not a number."""
        if entry.problem is not None:
            return entry.problem
        try:
            nodes = self.reader.read(entry.example)  # None raises too
        except TreememError as error:
            return error
        return self._scored(Forest.from_nodes([nodes]))[1].get(0)

    def _answers(self, chunk: Chunk, read: ReadExamples) -> list[dict[str, Any]]:
        predicted, refused = self._scored(read.forest)
        remaining = iter(predicted)
        by_place: dict[int, Answer] = {}
        warnings: dict[int, str] = {}
        kept = [number for number in range(len(read.forest)) if number not in refused]
        texts = self.model.warnings(read.forest if not refused else read.forest[kept]) if kept else {}
        texts = {kept[number]: text for number, text in texts.items()}
        errors = dict(read.errors)
        for number, place in enumerate(read.places):
            if number in refused:
                errors[place] = told_in_a_line(refused[number], chunk.entries[place].line)
            else:
                by_place[place] = next(remaining)
                if number in texts:
                    warnings[place] = texts[number]
        explanations: dict[int, Any] = {}
        if self.explain is not None:
            good = [number for number in kept if by_place[read.places[number]].prediction is not None]
            made = explain_forest(
                self.model, read.forest[good], self.explain, answer=self.explain_answer, threshold=self.threshold
            )
            for place, explained in zip([read.places[number] for number in good], made, strict=True):
                if isinstance(explained, TreememError):
                    known = [warnings[place]] if place in warnings else []
                    warnings[place] = "; ".join([*known, f"no explanation: {explained}"])
                else:
                    explanations[place] = explained.as_dict()
        answers = []
        for place, entry in enumerate(chunk.entries):
            prediction, probability = by_place.get(place, (None, None))
            error = errors.get(place)
            if entry.problem is not None:
                error = told_in_a_line(entry.problem, entry.line)
            elif prediction is None and error is None:
                error = f"line {entry.line}: the network's output is not a number"
            answers.append({"id": entry.id, "prediction": prediction, "probability": probability, "error": error})
            answers[-1]["warning"] = warnings.get(place)
            if self.explain is not None:
                answers[-1]["explanation"] = explanations.get(place)
        return answers

    def _scored(self, forest: Forest) -> tuple[list[Answer], dict[int, TreememError]]:
        """Return the predictions for the examples that the model accepts, and the errors of the others by number."""
        bad = (GraphError, VocabularyError, ParseError)
        try:
            return self._predicted(forest), {}
        except bad:
            refused = find_refused(len(forest), lambda begin, end: self._predicted(forest[begin:end]))
            if not refused:
                raise
        for number, error in refused.items():
            if not isinstance(error, bad):
                raise error
            refused[number] = type(error)(_NODE.sub("", str(error)))
        kept = np.array([number not in refused for number in range(len(forest))], bool)
        return self._predicted(forest[kept]), refused

    def _predicted(self, forest: Forest) -> list[Answer]:
        """Return the answer for every example, without a prediction if the network's output is not a number."""
        if not len(forest):
            return []
        model = self.model
        examples = model.task.examples_to_predict(forest)
        loader = model.loader(examples, None, BatchOptions(self.batch_size))
        if self._graphs is not None:
            check_graphs(model, examples, model.device, "cuda_graphs")
        cache = None
        shares_subtrees = getattr(model.encoder, "supports_shared_subtrees", False)
        is_several = len(examples) > 1  # subtrees of one example are shared within its batch
        if self._graphs is None and self.cache_bytes and is_several and shares_subtrees and model.task.reads_roots_only:
            cache = RowCache(model.encoder, examples.index(model.vocabulary), max_bytes=self.cache_bytes)
        kept = model.outputs_of(examples, loader, cache=cache, allow_nan=True, run=self._graphs)
        return model.answers(kept, examples, threshold=self.threshold)


def _checked_threshold(threshold: float, model: Model) -> float:
    threshold = checked_probability("threshold", threshold)
    if threshold != model.usual_threshold:
        model.task.check_threshold()
    return threshold
