"""What a task is, and the registry that finds tasks by name."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, TaskData
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, in_row
from treemem.metrics.accuracy import class_scores
from treemem.metrics.calibration import least_loss_temperature
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.model_output import Answer, ModelOutput, Verdict
from treemem.networks import NetworkConfig, NetworkTable
from treemem.records import read_records
from treemem.registry import Registry
from treemem.trees.bridges.dgl import forest_from_dgl
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import ParsedText, RecordReader, is_single_example
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)

__all__ = ["TASKS", "Answer", "ClassificationTask", "ModelOutput", "Task", "Verdict", "task_folder", "task_folders"]


class Task(ABC):
    """A task: its data, the answers asked for, and how they are scored.

    A task is a frozen dataclass whose fields are its options, which JSON can hold, so that a checkpoint can name it.
    Results of different ``version`` are not comparable. Labelled examples are forests: ``tree_data`` has labels, groups
    and splits.

    A subclass says which examples it has (:meth:`examples`), what the head is (:meth:`head`), what the
    loss is (:meth:`loss`) and how outputs are scored (:meth:`scores`). :class:`ClassificationTask` has defaults.

    Attributes:
        name, version: of the task.
        group: what scores are reported by: ``"depth"``, ``"length"``.
        monitor: the metric that chooses the best checkpoint, and that tables and plots show.
        published: figures of publications.
        networks: networks by the names that tables give them.
        data_options: the class of the options of :meth:`make_data`. Its attribute ``former``, if any, maps options that
            are gone to the value with which recipes may still have them.
        text_columns: the fields that a line of a text file holds, in order.
        record_fields: the fields that :meth:`read_examples` reads of a record, and what they hold.
        scoring_options: options that change scores but neither networks nor data, so that a trained model can be scored
            with others.
        learner: the :class:`~treemem.runs.training_step.Learner` that trains networks on it, if not the usual one: the
            class or ``"module:Class"``.
        reads_roots_only: whether the head reads nothing but the encodings of whole trees.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    group: ClassVar[str] = "group"
    monitor: ClassVar[Monitor] = Monitor("accuracy", "max")
    published: ClassVar[tuple[PublishedFigure, ...]] = ()
    networks: ClassVar[Mapping[str, NetworkConfig]] = NetworkTable()
    data_options: ClassVar[type]
    text_columns: ClassVar[tuple[str, ...]] = ()
    record_fields: ClassVar[Mapping[str, str]] = {}
    scoring_options: ClassVar[frozenset[str]] = frozenset()
    reads_roots_only: ClassVar[bool] = False
    learner: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.networks = NetworkTable(cls.networks)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that make an equal task: the fields of the dataclass."""
        if not dataclasses.is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The names of the classes, in order; None for yes or no, and for a task without classes."""
        return None

    @property
    def has_threshold(self) -> bool:
        """Whether a threshold of the probability decides the answer."""
        return False

    @property
    def output_names(self) -> tuple[Any, ...] | None:
        """The names of the columns of :meth:`predicted`, if it has several."""
        return self.class_names

    @property
    def token_form(self) -> TokenForm:
        """How sequence networks read the trees, unless their own options say so."""
        return "function"

    def group_name(self, group: int) -> str:
        """Return what tables call a group: its number, or the range that a bin holds; empty if there are no groups."""
        return str(group)

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the task. It does not depend on the data drawn."""

    @abstractmethod
    def make_data(self, options: Any, *, progress: bool | None = None) -> TaskData:
        """Generate or read the data that ``options``, of the class ``data_options``, ask for."""

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield labelled examples as records of a file: tree, label, split if the data are divided, and group.

        :meth:`read_examples` reads equal trees, labels and splits back from a file of them in CSV, JSONL or Parquet.

        Args:
            data: a forest of the task's trees; ``tree_data`` has their labels and splits.

        Raises:
            RecipeError: the task writes no files.
        """
        raise RecipeError(f"{self.name} does not say how its examples are written to files")

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the labelled examples of a file; ``tree_data["split"]`` holds its field ``split``, if it has one.

        Args:
            source: a path, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
            format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default.

        By default the examples are those that :attr:`reader` reads, without labels.

        Raises:
            RecipeError: there is no such file, or no example in it.
            ParseError, VocabularyError, GraphError: a record that is no example of the task; with file and line.
        """
        reader, name = self.reader, os.fspath(source)
        trees = []
        for record in read_records(source, format=format, text_fields=reader.text_fields, one_of=reader.example_fields):
            try:
                trees.append(reader.read(record.fields))
            except (ParseError, VocabularyError) as error:
                raise error.at(record.line, name) from error
            except GraphError as error:
                raise GraphError(f"{name}, line {record.line}: {error}") from error
        if not trees:
            raise RecipeError(f"there is no example in {name}")
        return Forest.from_nodes(trees)

    @abstractmethod
    def parse(self, text: str) -> Tree:
        """Return the example that a user's text describes. Raises ``ParseError``."""

    @property
    def reader(self) -> RecordReader:
        """What reads examples out of a user's records; by default it parses text lines and the field ``text``."""
        return ParsedText(self.parse)

    def verdicts(self, data: Forest) -> list[Verdict] | None:
        """Return what a test without a network says about each example. None if the task has no such test."""
        return None

    def forest_of(self, examples: Iterable[Any] | Forest) -> Forest:
        """Return examples as a forest; a forest stays as it is.

        Each example is one of these:

        * a text in the form of the task;
        * a dictionary with the fields of a record, such as ``{"lhs": "x", "rhs": "x + 0"}`` for equations;
        * a :class:`Tree`, a sympy expression or nested data (:func:`~treemem.trees.as_tree`);
        * a ``DGLGraph`` with the trees of one example, whose node field ``label`` indexes ``vocabulary.labels``.

        Raises:
            ParseError: a text or record is not an example of the task. ``line`` is the text's place in the list, from
                1; for a record the message names the row, from 1.
            VocabularyError: a text or record has too many variables.
            GraphError: a tree is not an example, an item has another type, or ``examples`` is a single example.
        """
        if isinstance(examples, Forest):
            return examples
        if is_single_example(examples):
            raise GraphError("examples are a list of texts or trees; put a single one in brackets")
        return Forest.from_trees([self._tree_of(example, place) for place, example in enumerate(examples, start=1)])

    def _tree_of(self, example: Any, place: int) -> Tree:
        try:
            if isinstance(example, str):
                return self.parse(example)
            reader = self.reader
            if isinstance(example, Tree):
                return reader.checked_tree(example)
            if hasattr(example, "in_degrees"):
                return reader.joined(list(forest_from_dgl(example, self.vocabulary.labels)))
            if isinstance(example, Mapping) and reader.is_record(example):
                return Forest.from_nodes([reader.nodes(example)])[0]
            return reader.checked_tree(reader.tree_of(example))
        except (ParseError, VocabularyError) as error:
            raise (in_row(place, error) if isinstance(example, Mapping) else error.at(place)) from error
        except GraphError as error:
            raise GraphError(f"example {place}: {error}") from error

    @abstractmethod
    def examples(self, data: Forest) -> Examples:
        """Return the examples of a forest of the task's trees; ``tree_data`` has their labels, groups and splits."""

    def examples_to_predict(self, data: Forest) -> Examples:
        """Return examples that are predicted one by one; not :meth:`examples` if that joins them to a stream."""
        return self.examples(data)

    def prepared(self, network: nn.Module, vocabulary: Vocabulary) -> nn.Module:
        """Return a network that was just made after changing it: with word vectors, for example. By default as it is.

        A checkpoint's weights are loaded afterwards, so shapes must depend on :attr:`options` and vocabulary alone.
        """
        return network

    @abstractmethod
    def head(self, hidden_size: int) -> nn.Module:
        """Return what turns an encoder's output into the outputs that :meth:`loss` and :meth:`kept` read."""

    def joint_head(self, hidden_size: int) -> nn.Module:
        """Return the head of a cross-encoder, which has one encoding for a whole pair, ``[examples, 1, hidden_size]``.

        Raises:
            RecipeError: the task has none.
        """
        raise RecipeError(f"{self.name} has no head for networks that read the trees of an example as one sequence")

    def training_monitor(self, examples: Any, chosen: NDArray[np.int64]) -> Monitor:
        """Return the metric that chooses the best epoch of a training, by default :attr:`monitor`.

        Args:
            examples: the data set.
            chosen: numbers of the training examples, int64.
        """
        return self.monitor

    @abstractmethod
    def loss(self, outputs: Any, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the loss of a batch: a sum, and the number of examples, nodes or tokens that it sums over."""

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> Tensor | list[Any]:
        """Return what scores and answers need of a batch: a row of a tensor, or an item of a list, for each example.

        By default these are the outputs themselves. A task with many outputs an example returns less here: a language
        model the sum of the negative log likelihood, a sequence-to-sequence model the decoded tokens.

        Args:
            output: of the model.
            batch: what it read; None if only the encodings are known, with ``reads_roots_only``.
            targets: of the batch; empty if nothing is known about it.
        """
        return output.outputs

    @abstractmethod
    def scores(self, kept: Any, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return a score for each group in ascending order, and last one for all examples.

        Args:
            kept: what :meth:`kept` returned, of all examples.
            targets: of these examples.
            group: int64 ``[examples]``.
        """

    @abstractmethod
    def answers(
        self, kept: Any, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the prediction for each example, and its probability.

        Args:
            kept: what :meth:`kept` returned, of all examples.
            targets: of these examples, as far as they are known.
            temperature: of the model.
            threshold: probability above which a task with :attr:`has_threshold` says yes.
        """

    def predicted(self, kept: Any, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0) -> Any:
        """Return a list of predictions; a classification returns an array of probabilities."""
        return [answer.prediction for answer in self.answers(kept, targets, temperature=temperature)]

    def correct(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
        """Return which examples are answered correctly, ``[examples]``; None if the task does not say."""
        return None

    def known_answers(self, examples: Examples) -> list[Any] | None:
        """Return the correct prediction for each example, as in :meth:`answers`, None if it is not known.

        None for all if the task does not say; a :class:`ClassificationTask` need not.
        """
        return None

    def validation_record(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return what else the log of an epoch says of the validation examples, such as their mean loss."""
        return {}

    def fitted_temperature(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> float | None:
        """Return the temperature that suits labelled examples; None if they set none, or the task has no such thing."""
        return None


class ClassificationTask(Task):
    """A task whose answer is yes or no, or one of several classes.

    The targets have ``"label"``: the number of the class, 1 and 0 for yes and no, -1 if it is not known. The defaults
    here are those of several classes: the head's outputs are logits ``[examples, classes]``.
    """

    reads_roots_only: ClassVar[bool] = True

    @property
    def has_threshold(self) -> bool:
        """Whether the answer is yes or no, or one of two classes, of which the second one has the threshold."""
        return self.class_names is None or len(self.class_names) == 2

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy."""
        return SumCount(functional.cross_entropy(outputs, targets["label"], reduction="sum"), float(len(outputs)))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the probability of each class ``[examples, classes]``, or of yes ``[examples]``."""
        return outputs.double().softmax(-1).numpy()

    def temperature_scaled(self, outputs: Tensor, temperature: float) -> Tensor:
        """Return outputs of less confidence (above 1) or more (below 1), and of the same answers.

        By default all outputs are divided. An output that is no logit must stay as it is.
        """
        return outputs / temperature

    def correct(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return which examples are classified correctly, ``[examples]``."""
        return outputs.argmax(-1).numpy() == targets["label"]

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return accuracy and majority by group and overall."""
        return class_scores(kept.argmax(-1).numpy(), targets["label"], group)

    def predicted(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the probabilities at a temperature."""
        scaled = kept if temperature == 1.0 else self.temperature_scaled(kept.double(), temperature)
        return self.probabilities(scaled, targets)

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return 1 or 0 and the probability of yes; or the name of the likeliest class and its probability.

        Of two classes the answer is the second one if its probability is above the threshold, else the first one.
        """
        if not len(kept):
            return []
        predicted = self.predicted(kept, targets, temperature=temperature)
        names = self.class_names
        if predicted.ndim == 1:
            answers: list[Any] = (predicted > threshold).astype(np.int64).tolist()
            chances = predicted.tolist()
        else:
            is_bad = np.isnan(predicted).any(1)
            places = predicted[:, 1] > threshold if predicted.shape[1] == 2 else predicted.argmax(1)
            chosen = places.astype(np.int64)
            answers = [int(place) if names is None else names[place] for place in chosen.tolist()]
            chances = np.where(is_bad, np.nan, predicted[np.arange(len(predicted)), chosen]).tolist()
        pairs = zip(answers, chances, strict=True)
        return [Answer(None, None) if math.isnan(chance) else Answer(word, chance) for word, chance in pairs]

    def validation_record(self, kept: Tensor, targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return the mean loss."""
        return {"validation_loss": float(self.loss(kept, _as_tensors(targets)).mean)}

    def fitted_temperature(self, kept: Tensor, targets: Mapping[str, NDArray[Any]]) -> float | None:
        """Return the temperature with the least loss; see :mod:`treemem.metrics.calibration`."""
        if not len(kept):
            return None
        tensors, outputs = _as_tensors(targets), kept.double()
        return least_loss_temperature(
            lambda temperature: float(self.loss(self.temperature_scaled(outputs, temperature), tensors).mean)
        )


def _as_tensors(targets: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in targets.items()}


TASKS: Registry[type[Task]] = Registry("task", "treemem.tasks", "TASKS")


def task_folder(name: str) -> Path | None:
    """The folder of a task's module, where its recipes and its trained model are; none for a task of a notebook.

    Raises:
        RecipeError: no task of that name.
    """
    module = sys.modules.get(TASKS.find(name).__module__)
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).parent


def task_folders() -> dict[str, Path]:
    """The folders of the tasks that have one, by name; of a task that cannot be imported a warning tells."""
    folders = {}
    for name in TASKS.names():
        try:
            folder = task_folder(name)
        except RecipeError as error:
            _logger.warning("%s", error)
            continue
        if folder is not None:
            folders[name] = folder
    return folders
