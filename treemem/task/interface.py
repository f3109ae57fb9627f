"""What a task is."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.checked_options import check_fields
from treemem.data.examples import Examples, TaskData, split_column
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, in_row
from treemem.metrics.class_report import ClassReport
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.model_output import Answer, ModelOutput, Verdict
from treemem.networks import NetworkConfig, NetworkTable
from treemem.trees.bridges.dgl import forest_from_dgl
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import ParsedText, RecordReader, is_single_example
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.trees.vocabulary import Vocabulary


TreeData = Mapping[str, NDArray[Any]]
"""What is known of each example of a forest, by name."""


class Groups(NamedTuple):
    """By what scores are reported, and by what a curriculum orders, int64 ``[examples]`` each."""

    group: NDArray[np.int64]
    difficulty: NDArray[np.int64]


class Task(ABC):
    """A task: its data, the answers asked for, and how they are scored.

    A task is a frozen dataclass whose fields are its options, which JSON can hold, so that a checkpoint can name it.
    Results of different ``version`` are not comparable. Labelled examples are forests: ``tree_data`` has labels, groups
    and splits.

    A subclass says which examples it has (:meth:`examples`), what the head is (:meth:`head`), what the
    loss is (:meth:`loss`) and how outputs are scored (:meth:`scores`). :class:`ClassificationTask` has defaults.

    Attributes:
        name, version: of the task.
        unit: what examples are, in the plural.
        group: what scores are reported by: ``"depth"``, ``"length"``.
        group_width: how many values one group holds; a group is named by the greatest of them.
        monitor: the metric that chooses the best checkpoint, and that tables and plots show.
        published: figures of publications.
        networks: networks by the names that tables give them.
        data_options: the class of the options of :meth:`make_data`. Its attribute ``former``, if any, maps options that
            are gone to the value with which recipes may still have them.
        file_options: options that are places of the user's files, or say how to read these. A checkpoint does not
            have them.
        text_columns: the fields that a line of a text file holds, in order.
        record_fields: the fields that :meth:`read_examples` reads of a record besides ``split``, and what they hold.
        scoring_options: options that change scores but neither networks nor data, so that a trained model can be scored
            with others.
        learner: the :class:`~treemem.runs.training_step.Learner` that trains networks on it, if not the usual one: the
            class or ``"module:Class"``.
        reads_roots_only: whether the head reads nothing but the encodings of whole trees.
        unlabelled_node: the target of a node that the loss leaves out; None: the loss takes all nodes.

    Raises:
        RecipeError: an option of another type than its field declares, or out of its range.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    unit: ClassVar[str] = "examples"
    group: ClassVar[str] = "group"
    group_width: ClassVar[int] = 1
    monitor: ClassVar[Monitor] = Monitor("accuracy", "max")
    published: ClassVar[tuple[PublishedFigure, ...]] = ()
    networks: ClassVar[Mapping[str, NetworkConfig]] = NetworkTable()
    data_options: ClassVar[type]
    file_options: ClassVar[frozenset[str]] = frozenset()
    text_columns: ClassVar[tuple[str, ...]] = ()
    record_fields: ClassVar[Mapping[str, str]] = {}
    scoring_options: ClassVar[frozenset[str]] = frozenset()
    reads_roots_only: ClassVar[bool] = False
    unlabelled_node: ClassVar[int | None] = None
    learner: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.networks = NetworkTable(cls.networks)

    def __post_init__(self) -> None:
        with contextlib.suppress(NameError):  # of types that only a type checker imports
            check_fields(self)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that make an equal task: the fields of the dataclass, without ``file_options``."""
        if not dataclasses.is_dataclass(self):
            return {}
        names = [field.name for field in dataclasses.fields(self) if field.init]
        return {name: getattr(self, name) for name in names if name not in self.file_options}

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The names of the classes, in order; None for yes or no, and for a task without classes."""
        return None

    @property
    def has_threshold(self) -> bool:
        """Whether a threshold of the probability decides the answer."""
        return False

    @property
    def scores_follow_threshold(self) -> bool:
        """Whether scores can be those at another threshold than 0.5: whether the task has :meth:`at_threshold`."""
        return False

    def check_threshold(self) -> None:
        """Raise a RecipeError if a threshold has no effect on the answers."""
        if not self.has_threshold:
            raise RecipeError(
                f"a threshold has no effect on {self.name}: it is for yes or no, for two classes and for labels; "
                "leave it out"
            )

    def at_threshold(self, kept: Tensor, threshold: float, *, temperature: float = 1.0) -> Tensor:
        """Return outputs whose answers at the threshold 0.5 are those of ``kept`` at another threshold.

        Args:
            kept: what :meth:`kept` returned.
            threshold: of the probability, above 0 and below 1.
            temperature: of the model.

        Raises:
            RecipeError: the task has no threshold that its scores can follow, or it is no such number.
        """
        self.check_threshold()
        raise RecipeError(f"the scores of {self.name} are those at the threshold 0.5; leave the threshold out")

    def best_threshold(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], metric: str, *, temperature: float = 1.0
    ) -> float:
        """Return the threshold with the highest F1 or balanced accuracy; see :mod:`treemem.metrics.threshold`.

        Args:
            kept: what :meth:`kept` returned, of all examples.
            targets: of these examples.
            metric: ``"f1"`` or ``"balanced accuracy"``.
            temperature: of the model.
        """
        raise NotImplementedError

    @property
    def output_names(self) -> tuple[Any, ...] | None:
        """The names of the columns of :meth:`predicted`, if it has several."""
        return self.class_names

    @property
    def token_form(self) -> TokenForm:
        """How sequence networks read the trees, unless their own options say so."""
        return "function"

    def group_name(self, group: int) -> str:
        """Return what tables call a group: its number, or the range of its values; empty if there are no groups."""
        return str(group) if self.group_width == 1 else f"{group - self.group_width + 1}-{group}"

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return of each example by what scores are reported and by what a curriculum orders, by default its height.

        Args:
            forest: the trees of the examples.
            tree_data: what is known of each example.
        """
        height = forest.height()[forest.begin[1:] - 1].astype(np.int64)
        return Groups(self.binned(height), height)

    def binned(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of each value: the greatest value of its group."""
        return -(-values // self.group_width) * self.group_width

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the task. It does not depend on the data drawn."""

    def example_name(self, number: int, count: int) -> str:
        """Return how errors name an example of :meth:`make_data`, such as its file and line.

        Args:
            number: of the example, from 0.
            count: of all examples.
        """
        return f"example {number + 1} of {count}"

    def split_and_group(self, examples: Examples) -> dict[str, Iterable[Any]]:
        """Return the columns of the splits, if examples are divided, and of what scores are grouped by, not binned."""
        values = examples.group if examples.difficulty is None else examples.difficulty
        return {**split_column(examples), self.group: values.tolist()}

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
        reader = self.reader
        trees, splits = read_labelled(
            source, reader, lambda record: reader.read(record.fields), self.unit, format=format
        )
        return Forest.from_nodes(trees).with_data(tree_data=splits)

    def read_good_examples(
        self, source: str | os.PathLike[str], vocabulary: Vocabulary, *, format: str | None = None
    ) -> TaskData:
        """Return the labelled examples of a file without its bad rows; their errors are in ``bad_rows``.

        A row is bad if :meth:`read_examples` cannot read it, or if it has a label that the vocabulary does not know.

        Args:
            source, format: as for :meth:`read_examples`.
            vocabulary: of the model that is to score the examples.

        Raises:
            RecipeError: the task leaves out no rows, there is no such file, or no good row in it.
        """
        raise RecipeError(f"bad rows can be left out of tables, and {self.name} reads none; mend or remove them")

    def parse(self, text: str) -> Tree:
        """Return the example that a user's text describes, by default a tree in brackets. Raises ``ParseError``."""
        return parse_brackets(text)

    def format(self, tree: Tree) -> str:
        """Return the text of an example, which :meth:`parse` reads."""
        return str(tree)

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

    def no_predictions(self) -> Any:
        """Return what :meth:`predicted` returns for no example: by default an empty list."""
        return []

    def answer_scores(self, kept: Any) -> Tensor:
        """Return a score of each answer for each example, ``[examples, answers]``: what explanations attribute.

        The answers are those of :attr:`output_names`, or 0 and 1 if the answer is yes or no. Gradients pass through.

        Args:
            kept: what :meth:`kept` returned.

        Raises:
            RecipeError: the answers are not classes, labels or numbers for whole examples.
        """
        raise RecipeError(
            f"answers of {self.name} cannot be explained: explanations are for tasks whose answer to a tree or a pair "
            "of trees is a class, a number or a set of labels"
        )

    def correct(self, kept: Any, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_] | None:
        """Return which examples are answered correctly, ``[examples]``; None if the task does not say."""
        return None

    def report(self, kept: Any, targets: Mapping[str, NDArray[Any]], *, threshold: float = 0.5) -> ClassReport | None:
        """Return the metrics of each class or label; None for a task without names of classes.

        Args:
            kept: what :meth:`kept` returned, or :meth:`at_threshold`, of all examples.
            targets: of these examples.
            threshold: for the report.
        """
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
