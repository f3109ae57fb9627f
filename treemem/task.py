"""What a task is, and the registry that finds tasks by name."""

from __future__ import annotations

import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.data.examples import Examples, TaskData
from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError
from treemem.metrics.score import PublishedFigure, Score
from treemem.networks import NetworkConfig
from treemem.registry import Registry
from treemem.trees.forest import Forest
from treemem.trees.record_reader import ParsedText, RecordReader
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)


class Task(ABC):
    """Labelled trees, what a network must say about them, and how well others did.

    A task is made from options that JSON can hold (``options``), so that a checkpoint can name it. Results of
    different ``version`` are not comparable.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    group: ClassVar[str] = "group"
    published: ClassVar[tuple[PublishedFigure, ...]] = ()
    networks: ClassVar[Mapping[str, NetworkConfig]] = {}
    data_options: ClassVar[type]
    text_columns: ClassVar[tuple[str, ...]] = ()
    """Which fields of :meth:`records_of` a line of text has, in order."""
    record_fields: ClassVar[Mapping[str, str]] = {}
    """The fields that :meth:`read_examples` reads of a record, and what they hold."""
    scoring_options: ClassVar[frozenset[str]] = frozenset()
    """Which of its options tell how scores are given and change neither networks nor data, so that a trained model can
    be scored with others."""

    @property
    def token_form(self) -> TokenForm:
        """How sequence networks read the trees, unless their options say so."""
        return "function"

    @abstractmethod
    def make_data(self, options: Any, *, progress: bool | None = None) -> TaskData:
        """The data that ``options``, of the class ``data_options``, ask for: generated or read from a file."""

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Labelled examples as records of a file: tree, label, split where they are divided, and group.

        :meth:`read_examples` reads equal trees, labels and splits back from a file of them in CSV, JSONL or Parquet.

        Args:
            data: a forest of the task's trees; ``tree_data`` has their labels and splits.

        Raises:
            RecipeError: the task writes no files.
        """
        raise RecipeError(f"{self.name} does not say how its examples are written to files")

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """The labelled examples of a file, ``tree_data["split"]`` included where its records have such a field.

        Args:
            source: a path, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
            format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default.

        Raises:
            RecipeError: there is no such file, no example in it, or the task reads none.
            ParseError, VocabularyError, GraphError: a record that is no example of the task; with file and line.
        """
        raise RecipeError(f"{self.name} does not say how its examples are read from files")

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What to give to the constructor for an equal task."""

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the task, which does not depend on the data drawn."""

    @abstractmethod
    def parse(self, text: str) -> Tree:
        """One example from a user's text. Raises ``ParseError``."""

    def forest_of(self, examples: Iterable[str | Tree] | Forest) -> Forest:
        """Examples given as texts or as trees; a forest of them is that already.

        Raises:
            ParseError: a text that is no example of the task; its ``line`` is the text's place, from 1.
            VocabularyError: a text with a variable too many; its ``line`` is the text's place.
            GraphError: a tree that is no example, something that is neither text nor tree, or a single one.
        """
        if isinstance(examples, Forest):
            return examples
        if isinstance(examples, (str, bytes, Tree)):
            raise GraphError("examples are a list of texts or trees; put a single one in brackets")
        return Forest.from_trees([self._tree_of(example, place) for place, example in enumerate(examples, start=1)])

    def _tree_of(self, example: str | Tree, place: int) -> Tree:
        try:
            if isinstance(example, Tree):
                return self.reader.checked_tree(example)
            if isinstance(example, str):
                return self.parse(example)
        except (ParseError, VocabularyError) as error:
            raise error.at(place) from error
        except GraphError as error:
            raise GraphError(f"example {place}: {error}") from error
        raise GraphError(f"example {place} is of type {type(example).__name__}; give a text or a tree")

    @property
    def reader(self) -> RecordReader:
        """What reads examples out of a user's records; by default it parses text lines and the field ``text``."""
        return ParsedText(self.parse)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes of :meth:`probabilities` are called, in their order; None where they are of true alone."""
        return None

    @abstractmethod
    def examples(self, data: Forest) -> Examples:
        """The examples of a forest of the task's trees; ``tree_data`` has their labels, groups and splits."""

    @abstractmethod
    def head(self, hidden_size: int) -> nn.Module:
        """What turns encodings ``[examples, trees_per_example, hidden_size]`` into outputs ``[examples, ...]``."""

    def joint_head(self, hidden_size: int) -> nn.Module:
        """What turns one encoding for a whole pair, ``[examples, 1, hidden_size]``, into the same outputs.

        Raises:
            RecipeError: the task has none.
        """
        raise RecipeError(f"{self.name} has no head for networks that read the trees of an example as one sequence")

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> Tensor:
        """The mean, over the examples of a batch, of what each of them loses, ``[]``.

        Processes that train together rely on its being a mean over examples, and not over nodes or labels.
        """

    @abstractmethod
    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The outputs as probabilities: of true ``[examples]``, or of each class ``[examples, classes]``.

        Of true is for a task whose target ``"label"`` is 1 for yes and 0 for no.
        """

    def tempered(self, outputs: Tensor, temperature: float) -> Tensor:
        """Outputs by which a model is surer (below 1) or less sure (above 1), and says the same.

        By default all outputs are divided: scores of true, or of classes. What is no such score must stay as it is.
        """
        return outputs / temperature

    @abstractmethod
    def right(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Which examples the outputs are right about, ``[examples]``."""

    @abstractmethod
    def scores(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """A score for each group in ascending order, and last one for all examples."""


TASKS: Registry[type[Task]] = Registry(
    "task",
    "treemem.tasks",
    {
        "equation_verification": "treemem.tasks.equation_verification.task:EquationVerification",
        "logical_inference": "treemem.tasks.logical_inference.task:LogicalInference",
        "listops": "treemem.tasks.listops.task:ListOps",
    },
)


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
