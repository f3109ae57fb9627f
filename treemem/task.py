"""What a task is, what a model of it is, and the registries that find tasks and networks by name."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.errors import CellError, GraphError, ParseError, RecipeError, VocabularyError, near_names
from treemem.evaluation_mode import in_evaluation_mode
from treemem.registry import Registry
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS as SPLITS
from treemem.trees.record_reader import ParsedText, RecordReader
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    from treemem.nn.row_cache import RowCache
    from treemem.schedule.tree_batch import TreeBatch
    from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """How well the examples of one group were predicted; fractions, not percent.

    Attributes:
        group: what these examples have in common (a depth, a length), or ``"all"``.
        majority: accuracy of always giving the commoner answer.
        precision, recall, f1: of the positive class, where the task has one.
        deviation: of the accuracy, where this is the mean of several runs.
    """

    group: int | str
    examples: int
    accuracy: float
    majority: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class PublishedFigure:
    """One number of a published table; a fraction, with the deviation over its runs where the table has one."""

    network: str
    split: str
    metric: str
    value: float
    deviation: float | None
    source: str


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of a task, as a network reads them.

    Attributes:
        forest: the trees; those of one example are adjacent.
        trees_per_example: 1 for a tree, 2 for a pair.
        targets: name to one entry an example: what the loss and the scores compare with.
        group: int64 ``[examples]``, what scores are told apart by.
        labelled: bool ``[examples]``, whether the answer is known.
        split: int8 ``[examples]``, index into ``SPLITS``; None where the data are not divided.
        difficulty: int64 ``[examples]``, what the stages of a curriculum go by; None where that is the group.
    """

    forest: Forest
    trees_per_example: int
    targets: Mapping[str, NDArray[Any]]
    group: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    split: NDArray[np.int8] | None = None
    difficulty: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.forest) // self.trees_per_example

    def part(self, split: str | None) -> NDArray[np.int64]:
        """Numbers of the examples of one split, or of all for None.

        Raises:
            RecipeError: no such split, or data that are not divided.
        """
        if split is None:
            return np.arange(len(self))
        if split not in SPLITS:
            raise RecipeError(f"no split {split!r}; there are {', '.join(SPLITS)}{near_names(split, SPLITS)}")
        if self.split is None:
            raise RecipeError(f"these data are not divided, so there is no {split!r} part; ask for all of them")
        return np.flatnonzero(self.split == SPLITS.index(split))

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The targets of some examples.

        Raises:
            RecipeError: one of them has no label.
        """
        if not self.labelled[chosen].all():
            raise RecipeError(f"example {int(chosen[np.argmin(self.labelled[chosen])])} has no label to compare with")
        return {name: array[chosen] for name, array in self.targets.items()}


def label_numbers(label: NDArray[Any] | None, count: int, num_classes: int, meaning: str) -> NDArray[np.int64]:
    """The classes of examples, int64 ``[examples]``; -1 where nobody said, and everywhere where there are none.

    Args:
        label: what the data say.
        count: how many examples there are.
        num_classes: classes count from 0.
        meaning: what a label must be, for the message.

    Raises:
        RecipeError: labels that mean nothing.
    """
    if label is None:
        return np.full(count, -1, np.int64)
    is_right = label.shape == (count,) and label.dtype.kind in "iub"
    if not is_right or ((label < -1) | (label >= num_classes)).any():
        raise RecipeError(f'tree_data["label"] must be {meaning}')
    return np.array(label, np.int64)


def split_numbers(split: NDArray[Any] | None) -> NDArray[np.int8] | None:
    """The names of splits as :class:`Examples` holds them, int8 ``[examples]``; None where there are none.

    Raises:
        RecipeError: a name that is no split's.
    """
    if split is None:
        return None
    names, place = np.unique(split, return_inverse=True)
    for name in names:
        if not str(name):
            raise RecipeError("some examples say no split, and others do; give each one, or none")
        if str(name) not in SPLITS:
            wanted = f"; it must be one of {', '.join(SPLITS)}{near_names(str(name), SPLITS)}"
            raise RecipeError(f'tree_data["split"] holds {str(name)!r}{wanted}')
    return np.array([SPLITS.index(str(name)) for name in names], np.int8)[place]


def split_and_group(examples: Examples, group: str) -> Iterator[dict[str, Any]]:
    """What a file says of each example besides tree and label: its split, where they are divided, and its group.

    Args:
        examples: the examples.
        group: what the task calls its groups.
    """
    for number, value in enumerate(examples.group.tolist()):
        divided = {} if examples.split is None else {"split": SPLITS[examples.split[number]]}
        yield {**divided, group: value}


def without_empty(forest: Forest, name: str) -> Forest:
    """The forest without the texts ``tree_data[name]`` where each of them is empty: no record had such a field."""
    if (forest.tree_data[name] != "").any():
        return forest
    return forest.with_data(tree_data={key: value for key, value in forest.tree_data.items() if key != name})


class DataSet(Protocol):
    """Whatever has the task's trees in a forest: a generated data set, a file that was read."""

    @property
    def forest(self) -> Forest:
        """The trees, with labels, groups and splits in ``tree_data``."""
        ...


@dataclass(frozen=True, eq=False)
class TaskData:
    """The data of a task.

    Attributes:
        forest: the trees, with labels, groups and splits in ``tree_data``.
        card: what they are and where they come from, as Markdown.
    """

    forest: Forest
    card: str


def forest_of(data: Forest | DataSet) -> Forest:
    """The forest of a data set, or the forest itself."""
    return data if isinstance(data, Forest) else data.forest


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


@dataclass(frozen=True)
class NetworkConfig:
    """A network as a recipe or a checkpoint names it.

    Attributes:
        network: its name in the registry ``NETWORKS``.
        options: arguments of its constructor, besides the vocabulary.
    """

    network: str
    options: dict[str, Any] = field(default_factory=dict)

    def replace(self, **options: Any) -> NetworkConfig:
        """The same network with some options changed."""
        return NetworkConfig(self.network, {**self.options, **options})

    def constructor(self, own: Mapping[str, Callable[..., nn.Module]] | None = None) -> Callable[..., nn.Module]:
        """What makes the network; ``own`` are classes by name that count before the registered ones.

        Raises:
            RecipeError: a name that is not registered.
        """
        return (own or {}).get(self.network) or NETWORKS.find(self.network)

    def build(
        self,
        vocabulary: Vocabulary,
        own: Mapping[str, Callable[..., nn.Module]] | None = None,
        *,
        form: TokenForm | None = None,
    ) -> nn.Module:
        """The network with fresh weights.

        Args:
            vocabulary: the labels that it knows.
            own: classes by name that count before the registered ones.
            form: how it reads trees as tokens, where it does so and its options do not say.

        Raises:
            RecipeError: a name that is not registered, or an option that the network does not have or take.
        """
        network_class = self.constructor(own)
        known = [name for name in inspect.signature(network_class).parameters if name != "vocabulary"]
        for name in self.options:
            if name not in known:
                raise RecipeError(
                    f"{self.network} has no option {name!r}{near_names(name, known)}; it has {', '.join(known)}"
                )
        options = {"form": form, **self.options} if form is not None and "form" in known else self.options
        try:
            return network_class(vocabulary=vocabulary, **options)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            problem = str(error).partition("\n")[0]  # torch adds where in its own code
            raise RecipeError(f"{self.network} cannot be made with {self.options}: {problem}") from error


class Model(nn.Module):
    """A network under the head of a task.

    Args:
        task: gives the head and, by default, the vocabulary.
        network: the network and its options.
        vocabulary: the labels that the network knows.
        networks: own network classes by name, besides the registered ones.

    Attributes:
        task, network, vocabulary: what it was made of.
        encoder: the network; gives ``[examples, trees_per_example, hidden_size]``, or ``[examples, 1, hidden_size]``
            where it has an attribute ``joint`` that is true: it reads the trees of an example as one sequence.
        head: gives the outputs that the task's loss and scores read.
        temperature: what outputs are divided by before they become probabilities; see :mod:`treemem.calibration`.
    """

    def __init__(
        self,
        task: Task,
        network: NetworkConfig,
        vocabulary: Vocabulary | None = None,
        *,
        networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        self.network = network
        self.vocabulary = task.vocabulary if vocabulary is None else vocabulary
        self.encoder = network.build(self.vocabulary, networks, form=task.token_form)
        self.temperature = 1.0
        make_head = task.joint_head if getattr(self.encoder, "joint", False) else task.head
        self.head = make_head(int(self.encoder.hidden_size))  # type: ignore[arg-type]

    def forward(self, batch: TreeBatch) -> Tensor:
        """The outputs ``[examples, ...]`` for a batch."""
        return self.head(self.encoder(batch))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The outputs as probabilities, at the model's temperature; see :meth:`Task.probabilities`."""
        if self.temperature != 1.0:
            outputs = self.task.tempered(outputs.double(), self.temperature)
        return self.task.probabilities(outputs, targets)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def needs_whole_batch(self) -> str | None:
        """The network's option that makes an example depend on the others of its batch, if any does."""
        return getattr(self.encoder, "needs_whole_batch", None)

    def outputs(
        self,
        examples: Examples,
        chosen: NDArray[np.int64] | None = None,
        *,
        batch_size: int = 1024,
        index: SubtreeIndex | None = None,
        cache: RowCache | None = None,
        advance: Callable[[int], object] = lambda count: None,
    ) -> Tensor:
        """The outputs for many examples, in evaluation mode and without gradients.

        Where :attr:`needs_whole_batch` names an option, examples of similar length run together.

        Args:
            examples: where the examples are.
            chosen: their numbers; all by default.
            batch_size: examples that run together.
            index: of the examples' forest, where it was made before.
            cache: of this encoder and the same ``index``: shares equal subtrees across batches; the same outputs.
            advance: told the number of examples done after each batch.

        Returns:
            ``[chosen, ...]`` on the CPU, in the order of ``chosen``.

        Raises:
            RecipeError: a cache of another network or index.
            CellError: the network's outputs are not numbers, as after a training that diverged.
        """
        if index is None:
            index = SubtreeIndex(examples.forest, self.vocabulary) if cache is None else cache.index
        loader = TreeLoader(
            index,
            chosen,
            batch_size,
            trees_per_example=examples.trees_per_example,
            sort_by_length=self.needs_whole_batch is not None,
        )
        return self.outputs_of(loader, cache=cache, advance=advance)

    def outputs_of(
        self,
        loader: TreeLoader,
        *,
        cache: RowCache | None = None,
        advance: Callable[[int], object] = lambda count: None,
        allow_nan: bool = False,
    ) -> Tensor:
        """The outputs for the examples of a loader, whatever their order in its batches; see :meth:`outputs`.

        Args:
            loader: makes the batches; with a cache, which makes them itself, says what they hold.
            cache, advance: as in :meth:`outputs`.
            allow_nan: return outputs that are not numbers, rather than raise.

        Returns:
            ``[examples, ...]`` on the CPU, in the order of ``loader.examples``.

        Raises:
            RecipeError, CellError: as in :meth:`outputs`.
        """
        if cache is not None and (cache.network is not self.encoder or cache.index is not loader.index):
            raise RecipeError("the cache is one of another network or of another index; make one of these")
        plan = loader.plan()
        done: list[Tensor] = []
        with in_evaluation_mode(self):
            for encodings in self._encodings(loader, plan, cache):
                done.append(self.head(encodings).cpu())
                advance(len(done[-1]))
        if not done:
            return torch.empty(0)
        outputs = torch.cat(done)
        ordered = torch.empty_like(outputs)
        ordered[torch.from_numpy(np.concatenate(plan))] = outputs
        if not allow_nan and ordered.isnan().any():
            number = int(loader.examples[int(ordered.isnan().reshape(len(ordered), -1).any(1).nonzero()[0])])
            raise CellError(f"the network's output for example {number} is not a number; its weights may not be either")
        return ordered

    def _encodings(self, loader: TreeLoader, plan: list[NDArray[np.int64]], cache: RowCache | None) -> Iterator[Any]:
        if cache is None:
            for batch in loader.batches(plan):
                yield self.encoder(batch.to(self.device))
            return
        before = cache.seconds
        yield from cache.encode_batches(
            [loader.examples[places] for places in plan], trees_per_example=loader.trees_per_example
        )
        loader.seconds += cache.seconds - before

    def predict(self, data: Sequence[str | Tree] | Forest, *, batch_size: int = 1024) -> NDArray[np.float64]:
        """Probabilities for texts and trees, or for a forest of the task's trees.

        Raises:
            ParseError: a text that is no example of the task; its ``line`` is the text's place, from 1.
            VocabularyError: a label that the model does not know.
            GraphError: a tree that is no example of the task, or what is no list of texts and trees.
        """
        data = self.task.forest_of(data)
        if not len(data):
            return np.empty(0)
        examples = self.task.examples(data)
        return self.probabilities(self.outputs(examples, batch_size=batch_size), examples.targets)


def weights_of(
    task: Task,
    network: NetworkConfig,
    vocabulary: Vocabulary | None = None,
    *,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
) -> dict[str, Tensor]:
    """The names, shapes and types of a model's weights; no memory is taken for them, and no random number drawn.

    A class from outside the library may need numbers while it is made; such a model is made on the CPU.

    Args:
        task, network, vocabulary, networks: as for :class:`Model`.

    Raises:
        RecipeError: as :meth:`NetworkConfig.build`.
    """
    made_of = (network.constructor(networks), type(task))
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return Model(task, network, vocabulary, networks=networks).state_dict()
        except (RecipeError, RuntimeError, TypeError):
            if all(each.__module__.startswith("treemem.") for each in made_of):
                raise
        return Model(task, network, vocabulary, networks=networks).state_dict()


TASKS: Registry[type[Task]] = Registry(
    "task",
    "treemem.tasks",
    {
        "equation_verification": "treemem.tasks.equation_verification.task:EquationVerification",
        "logical_inference": "treemem.tasks.logical_inference.task:LogicalInference",
        "listops": "treemem.tasks.listops.task:ListOps",
    },
)

NETWORKS: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    "treemem.networks",
    {
        name: f"treemem.nn:{name}"
        for name in (
            "TreeRNN",
            "TreeLSTM",
            "ChildSumTreeLSTM",
            "TreeCell",
            "StackTreeRNN",
            "StackTreeLSTM",
            "RNN",
            "LSTM",
            "OrderedMemory",
            "ONLSTM",
            "Transformer",
            "UniversalTransformer",
        )
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
