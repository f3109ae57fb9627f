"""Examples of a task: trees, targets, splits and groups."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treemem.data.loader import Batch, BatchOptions, Loader, SequenceLoader, StreamLoader
from treemem.data.token_batch import TokenBatch
from treemem.data_parallel import Processes
from treemem.device_copy import to_device, to_device_together
from treemem.errors import GraphError, RecipeError, VocabularyError, near_names
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import VECTOR, Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.postorder import concatenated_ranges
from treemem.trees.tokens import TokenSequences
from treemem.trees.vocabulary import Vocabulary

_ROWS_AT_ONCE = 4096  # of vectors, which need not all be in memory
PADDING = -100
"""Marks padding in token targets, as ``ignore_index`` of torch's cross-entropy."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of a task as trees: what a data set yields batches and targets of.

    If the forest has vectors, batches have those of their nodes as ``feat``, and do not share equal subtrees.

    Attributes:
        forest: the trees; those of one example are adjacent.
        trees_per_example: 1 for a tree, 2 for a pair.
        targets: by name, what the loss and the metrics compare with; the first axis counts examples, or nodes.
        group: int64 ``[examples]``, by what scores are reported: depth, length, number of operations.
        labelled: bool ``[examples]``, whether the targets are known.
        split: int8 ``[examples]``, index into ``SPLITS``; None if the data are not divided.
        difficulty: int64 ``[examples]``, by what a curriculum orders; None: by the group.
        node_targets: names of the targets whose first axis counts the nodes of the forest.
    """

    forest: Forest
    trees_per_example: int
    targets: Mapping[str, NDArray[Any]]
    group: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    split: NDArray[np.int8] | None = None
    difficulty: NDArray[np.int64] | None = None
    node_targets: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        of_examples = {"group": self.group, "labelled": self.labelled, "difficulty": self.difficulty}
        for name, values in of_examples.items():
            if values is not None and len(values) != len(self):
                raise GraphError(f"{name} has {len(values)} entries, and there are {len(self)} examples")

    def __len__(self) -> int:
        return len(self.forest) // self.trees_per_example

    def part(self, split: str | None) -> NDArray[np.int64]:
        """Return the numbers of the examples of one split, or of all for None.

        Raises:
            RecipeError: there is no such split, or the data are not divided.
        """
        if split is None:
            return np.arange(len(self))
        if split not in SPLITS:
            raise RecipeError(f"no split {split!r}; there are {', '.join(SPLITS)}{near_names(split, SPLITS)}")
        if self.split is None:
            raise RecipeError(f"these data are not divided, so there is no {split!r} part; ask for all of them")
        return np.flatnonzero(self.split == SPLITS.index(split))

    def scorable_part(self, split: str | None, purpose: str = "evaluate") -> NDArray[np.int64]:
        """Return the numbers of the examples of a split, all of which have labels.

        Raises:
            RecipeError: as :meth:`part`, or the split is empty, or an example has no label.
        """
        chosen = self.part(split)
        if not len(chosen):
            there = ", ".join(f"{len(self.part(name))} {name}" for name in SPLITS) if split else ""
            where = f" in the split {split!r}; the data have {there}, and a field split divides them otherwise"
            raise RecipeError(f"there is no example to {purpose}{where if split else ''}")
        self.check_labelled(chosen)
        return chosen

    def check_labelled(self, chosen: NDArray[np.int64]) -> None:
        """Raise ``RecipeError`` if one of the examples has no label."""
        if not self.labelled[chosen].all():
            first = int(chosen[np.argmin(self.labelled[chosen])]) + 1
            raise RecipeError(f"example {first} of {len(self)} has no label; add one, or leave it out")

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the targets of some examples, in their order; those of nodes one example after the other.

        Raises:
            RecipeError: one of them has no label.
        """
        self.check_labelled(chosen)
        return {
            name: array[self.nodes_of(chosen) if name in self.node_targets else chosen]
            for name, array in self.targets.items()
        }

    def nodes_of(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the nodes of some examples, one example after the other."""
        first = self.forest.begin[chosen * self.trees_per_example]
        last = self.forest.begin[(chosen + 1) * self.trees_per_example]
        return concatenated_ranges(first, last - first)

    def batch_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the targets of a batch of this data set as tensors.

        Raises:
            RecipeError: one of its examples has no label.
        """
        assert batch.example_ids is not None  # a loader's batch says where its examples came from
        targets = self.targets_of(batch.example_ids)
        tensors = to_device_together([torch.from_numpy(array) for array in targets.values()], device)
        return dict(zip(targets, tensors, strict=True))

    def known_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Return the targets of a batch, or nothing if an example has no label."""
        return self.batch_targets(batch, device) if self.labelled[batch.example_ids].all() else {}

    def loader(
        self, vocabulary: Vocabulary, chosen: NDArray[np.int64] | None = None, options: BatchOptions | None = None
    ) -> Loader:
        """Return what makes batches of some examples.

        Args:
            vocabulary: of the network.
            chosen: numbers of the examples; all by default.
            options: how to make batches.

        Raises:
            VocabularyError: a label that the vocabulary does not know.
        """
        options = BatchOptions() if options is None else options
        return TreeExampleLoader(self, self.index(vocabulary), chosen, options)

    def index(self, vocabulary: Vocabulary) -> SubtreeIndex:
        """Return the index of the forest's subtrees, which is made once for each vocabulary."""
        made: dict[str, SubtreeIndex] = self.__dict__.setdefault("_index", {})
        if vocabulary.digest not in made:
            made[vocabulary.digest] = SubtreeIndex(self.forest, vocabulary)
        return made[vocabulary.digest]

    def check_vocabulary(self, vocabulary: Vocabulary, first: int = 0, last: int | None = None) -> None:
        """Check that a vocabulary knows the labels of the examples from ``first`` to before ``last``.

        Raises:
            VocabularyError: it does not.
        """
        vocabulary.encode(self.forest[self._trees(first, last)])

    def _trees(self, first: int, last: int | None) -> slice:
        end = len(self) if last is None else last
        return slice(first * self.trees_per_example, end * self.trees_per_example)

    def digest(self) -> str:
        """Return the SHA-256 of trees, targets, groups and splits, in hexadecimal."""
        forest = self.forest
        digest = hashlib.sha256("\0".join(forest.labels).encode())
        arrays = {"label": forest.label, "arity": forest.arity, "begin": forest.begin, "group": self.group}
        arrays.update({f"target {name}": array for name, array in sorted(self.targets.items())})
        for name, array in (*arrays.items(), ("value", forest.value), ("split", self.split)):
            if array is not None:
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(array).data)  # not copied: it may be mapped from a file
        if forest.vectors is not None:
            digest.update(forest.node_data[VECTOR].tobytes())
            for begin in range(0, len(forest.vectors), _ROWS_AT_ONCE):
                digest.update(np.ascontiguousarray(forest.vectors[begin : begin + _ROWS_AT_ONCE]).tobytes())
        return digest.hexdigest()


class TreeExampleLoader(TreeLoader):
    """A :class:`~treemem.schedule.TreeLoader` over the examples of a data set."""

    def __init__(
        self, data: Examples, index: SubtreeIndex, chosen: NDArray[np.int64] | None, options: BatchOptions
    ) -> None:
        fields = dataclasses.asdict(options)
        epoch = fields.pop("epoch")
        fields["share_subtrees"] &= data.forest.vectors is None
        super().__init__(index, chosen, trees_per_example=data.trees_per_example, **fields)
        self.set_epoch(epoch)
        self._data = data
        self.group = data.group[self.examples]

    def _make(self, places: NDArray[np.int64]) -> TreeBatch:
        batch = super()._make(places)
        forest = self.index.forest
        if forest.vectors is not None:
            batch.feat = torch.from_numpy(forest.vectors_of(self._data.nodes_of(self.examples[places])))
        return batch

    def parts(self, plan: Sequence[NDArray[np.int64]], processes: Processes) -> list[NDArray[np.int64]]:
        """Return what this process does of each batch: parts of about as many nodes."""
        num_nodes = self.num_nodes()
        return [places[processes.balanced_part(num_nodes[places])] for places in plan]


@dataclass(frozen=True, eq=False)
class SequenceExamples(Examples):
    """Examples that are token sequences, or pairs of a source and a target sequence.

    They are kept as flat trees (:meth:`treemem.trees.Forest.from_sequences`); batches are
    :class:`~treemem.data.token_batch.TokenBatch`. Pairs have a target ``"tokens"`` ``[batch, time]`` besides, with
    ``PADDING`` after the end.
    """

    def loader(
        self, vocabulary: Vocabulary, chosen: NDArray[np.int64] | None = None, options: BatchOptions | None = None
    ) -> Loader:
        chosen = np.arange(len(self)) if chosen is None else chosen
        options = BatchOptions() if options is None else options
        _check_batches_of_sequences(options)
        sequences = flat_tokens(self.forest, vocabulary)
        return SequenceLoader(sequences, self.trees_per_example, chosen, self.group[chosen], options)

    def check_vocabulary(self, vocabulary: Vocabulary, first: int = 0, last: int | None = None) -> None:
        flat_tokens(self.forest[self._trees(first, last)], vocabulary)

    def batch_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        targets = super().batch_targets(batch, device)
        return {**targets, **_token_targets(batch, device)}


@dataclass(frozen=True, eq=False)
class StreamExamples(SequenceExamples):
    """Sequences that are read one after the other as one stream, for language models.

    ``batch_size`` is the number of columns that run side by side. A batch continues the one before it, and its target
    ``"tokens"`` ``[columns, steps]`` holds the next tokens. The whole stream is labelled by itself.

    Attributes:
        steps: tokens of each column in a batch.
        varied_steps: whether shuffled batches, those of training, have different numbers of tokens; see
            :class:`~treemem.data.loader.StreamLoader`.
        evaluation_columns: the number of columns of batches that are not shuffled, instead of ``batch_size``; fewer if
            they were shorter than ``steps``, so that words keep their context.
    """

    steps: int = 35
    varied_steps: bool = False
    evaluation_columns: int | None = None

    def loader(
        self, vocabulary: Vocabulary, chosen: NDArray[np.int64] | None = None, options: BatchOptions | None = None
    ) -> Loader:
        options = BatchOptions() if options is None else options
        _check_batches_of_sequences(options)
        stream, ids = self.stream(vocabulary, np.arange(len(self)) if chosen is None else chosen)
        if not options.shuffle:
            most = self.evaluation_columns or options.batch_size
            return StreamLoader(stream, min(most, (len(stream) - 1) // self.steps), self.steps, ids=ids)
        draw = np.random.default_rng([options.seed, options.epoch]) if self.varied_steps else None
        return StreamLoader(stream, options.batch_size, self.steps, draw, ids)

    def stream(
        self, vocabulary: Vocabulary, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.integer], NDArray[np.int64] | None]:
        """Return the tokens of some examples, one after the other, ``[tokens]``, and the ids of these numbers.

        Without ids, tokens are ids of the vocabulary's leaves.

        Raises:
            VocabularyError: a token that the vocabulary does not know.
        """
        sequences = flat_tokens(self.forest, vocabulary)
        first = sequences.begin[chosen]
        return sequences.token[concatenated_ranges(first, sequences.begin[chosen + 1] - first)], None

    def batch_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        return _token_targets(batch, device)

    def known_targets(self, batch: Batch, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        return _token_targets(batch, device)

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {}


def _check_batches_of_sequences(options: BatchOptions) -> None:
    if options.nodes_per_batch is not None:
        raise RecipeError("nodes_per_batch counts the nodes of trees, and these are sequences; set batch_size")


def _token_targets(batch: Batch, device: torch.device | str) -> dict[str, Tensor]:
    target = batch.target if isinstance(batch, TokenBatch) else None
    if target is None:
        return {}
    is_padding = torch.arange(target.token.shape[1]) >= target.lengths.cpu()[:, None]
    masked = target.token.masked_fill(to_device(is_padding, target.token.device), PADDING)
    return {"tokens": to_device(masked, device)}


def flat_tokens(forest: Forest, vocabulary: Vocabulary) -> TokenSequences:
    """Return the leaves of flat trees as ids of the vocabulary's leaves; a lone root is an empty sequence.

    Raises:
        VocabularyError: a token that the vocabulary does not know, if it has no ``unknown``.
    """
    of_label = ids_of_labels(forest.labels, vocabulary)
    is_token = np.ones(forest.num_nodes, bool)
    is_token[forest.begin[1:] - 1] = False
    node = np.flatnonzero(is_token)
    token = of_label[forest.label[node]] if len(node) else np.empty(0, np.int64)
    if len(token) and token.min() < 0:
        raise unknown_token(forest.labels[forest.label[node[int(token.argmin())]]], vocabulary)
    begin = forest.begin - np.arange(len(forest.begin))
    return TokenSequences(vocabulary.leaves, token, begin, node)


def ids_of_labels(labels: Sequence[str], vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Return the ids of labels among the vocabulary's leaves, ``[labels]``: for an unknown one that of ``unknown``.

    It is -1 if the vocabulary has no ``unknown``.
    """
    known = {leaf: number for number, leaf in enumerate(vocabulary.leaves)}
    unknown = known.get(vocabulary.unknown, -1) if vocabulary.unknown is not None else -1
    return np.array([known.get(label, unknown) for label in labels], np.int64)


def unknown_token(label: str, vocabulary: Vocabulary) -> VocabularyError:
    """Return the error of a token that the vocabulary does not know."""
    return VocabularyError(f"unknown token {label!r}{near_names(label, vocabulary.leaves)}")


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
    is_whole = label.dtype.kind in "iub"
    wrong = label[(label < -1) | (label >= num_classes)] if is_whole else label
    if wrong.size or label.shape != (count,):
        problem = f"not {wrong.flat[0].item()!r}" if wrong.size else f"not of shape {list(label.shape)}"
        raise RecipeError(f'labels (tree_data["label"]) must be {meaning}, {problem}')
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


def split_column(examples: Examples) -> dict[str, list[str]]:
    """Return the column ``split`` of a file of examples; no column if they are not divided."""
    return {} if examples.split is None else {"split": [SPLITS[number] for number in examples.split]}


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
        bad_rows: records of rows that were left out, with the fields ``id`` (the line) and ``error``.
    """

    forest: Forest
    card: str
    bad_rows: Sequence[Mapping[str, Any]] = ()


def forest_of(data: Forest | DataSet) -> Forest:
    """The forest of a data set, or the forest itself.

    Raises:
        RecipeError: ``data`` is something else.
    """
    forest = getattr(data, "forest", data)
    if not isinstance(forest, Forest):
        raise RecipeError(
            f"data must be a forest or a data set of the task, not {type(data).__name__}; "
            "task.make_data and task.read_examples return them"
        )
    return forest
