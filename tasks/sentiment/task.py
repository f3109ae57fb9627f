"""The sentiment task: the class of a sentence."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.checked_options import Count, Probability
from treemem.data.examples import Examples, TaskData
from treemem.data.sum_count import SumCount
from treemem.errors import ParseError, RecipeError, shown
from treemem.heads import ClassifierHead
from treemem.metrics.score import Monitor, PublishedFigure
from treemem.networks import NetworkConfig, every_network
from treemem.networks.encoder_output import EncoderOutput
from treemem.networks.trees.tree_states import TreeStates
from treemem.networks.word_vectors import WordVectors
from treemem.records import Record
from treemem.task import Groups, TreeData
from treemem.task.words import WordClassification, known_words
from treemem.tasks.sentiment.data import SentimentDataOptions, node_classes, root_classes, sentiment_data
from treemem.tasks.sentiment.published import PUBLISHED_FIGURES
from treemem.tasks.sentiment.readers import (
    format_sentiment,
    lower_cased,
    map_contextual_vectors,
    read_treebank,
    read_word_vectors,
    treebank_files,
)
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT, parse_brackets
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import number_text, text_of
from treemem.trees.formats.sentiment import SentimentNodes, parse_sentiment_tree, sentiment_forest
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

Supervision = Literal["nodes", "root"]
_NAMES = {
    2: ("negative", "positive"),
    5: ("very negative", "negative", "neutral", "positive", "very positive"),
}


@dataclass(frozen=True)
class Sentiment(WordClassification):
    """The sentiment of sentences of film reviews, from the Stanford Sentiment Treebank (Socher et al. 2013).

    Data are forests of binary trees over words. ``node_data["class"]`` has the class of each node, from 0 (very
    negative) to 4; -1 if it is not known. Tree networks read the trees, sequence networks their leaves.

    Args:
        path: the folder of ``train.txt``, ``dev.txt`` and ``test.txt``. A checkpoint needs none.
        classes: 5, or 2: negative and positive, without neutral sentences.
        supervision: ``"nodes"``: tree networks learn the class of every labelled node, as in Tai et al. 2015; with two
            classes, neutral nodes have none. ``"root"``: of whole sentences alone. Sequence networks have no nodes and
            learn the class of the whole in either case.
        vectors: a text file of GloVe or word2vec; see :func:`~treemem.tasks.sentiment.readers.read_word_vectors`. Words
            without a vector there have 0. None: vectors are learned from the trees alone.
        tuned: whether the vectors of the file are trained too.
        contextual: ``vectors`` is a file of NumPy (``.npy``) with a vector for each word of each sentence, such as the
            outputs of a language model: ``[words, width]``, in the order of the words of ``train.txt``, ``dev.txt`` and
            ``test.txt``. It is mapped into memory, so a batch reads its own rows alone. A linear map follows.
        vector_size: width of the vectors; by default that of the file.
        least_count: a word is known if it has a vector, or is in the training sentences so often. Others are read as
            ``<unk>``.
        lower: whether words are read in lower case.
        dropout: of the head.

    Raises:
        RecipeError: an option outside its range.
    """

    name: ClassVar[str] = "sentiment"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "trees"
    group: ClassVar[str] = "length"
    group_width: ClassVar[int] = 10
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")  # as the recorded results were chosen
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED_FIGURES
    networks: ClassVar[Mapping[str, NetworkConfig]] = every_network(100)
    data_options: ClassVar[type] = SentimentDataOptions
    unlabelled_node: ClassVar[int | None] = -1
    file_options: ClassVar[frozenset[str]] = frozenset({"path", "vectors"})
    text_columns: ClassVar[tuple[str, ...]] = ("tree",)
    record_fields: ClassVar[Mapping[str, str]] = {
        "tree": "a tree with classes, as in (3 (2 It) (4 (2 works) (2 .))) (or text)",
    }
    missing: ClassVar[str] = (
        "sentiment needs the Stanford Sentiment Treebank, which does not come with treemem; unpack its "
        "trainDevTestTrees_PTB.zip and give the folder of train.txt, dev.txt and test.txt with "
        "task_options.path=FOLDER"
    )

    path: str | None = None
    classes: int = 5
    supervision: Supervision = "nodes"
    vectors: str | None = None
    tuned: bool = False
    contextual: bool = False
    vector_size: Count | None = None
    least_count: Count = 2
    lower: bool = False
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        if self.classes not in _NAMES:
            raise RecipeError(f"classes must be 2 or 5, not {self.classes!r:.60}")
        super().__post_init__()
        if self.tuned and self.contextual:
            raise RecipeError("contextual vectors belong to sentences and are not trained; leave out tuned")

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain data, without the places of files."""
        return {**super().options, "vector_size": self._vector_size}

    @property
    def _vector_size(self) -> int | None:
        return self.vector_size if self.vectors is None else self._files.vectors.shape[1]

    def read_path(self, path: str) -> Forest:
        return self.treebank

    @property
    def treebank(self) -> Forest:
        """The sentences of all splits, with words as they are read.

        Raises:
            RecipeError: ``path`` is not given, a file is missing, or its vectors have another width than
                ``vector_size``.
            ParseError: a line of a file cannot be read.
        """
        return self._files.forest

    @cached_property
    def _files(self) -> _Files:
        if self.path is None:
            raise RecipeError(self.missing)
        paths = [*treebank_files(self.path), *([] if self.vectors is None else [Path(self.vectors)])]
        changed = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
        files = _read_files(self.path, self.vectors, self.contextual, self.lower, changed)
        width = files.vectors.shape[1]
        if self.vectors is not None and self.vector_size not in (None, width):
            raise RecipeError(
                f"the vectors in {self.vectors} have {width} numbers, and vector_size is {self.vector_size}; "
                f"set task_options.vector_size={width}, or give another file"
            )
        return files

    def words(self) -> list[str]:
        """Return the known words in the order of their first places; without ``path`` there are none."""
        if self.path is None:
            return []
        forest, with_vector, _ = self._files
        known = {*known_words(forest, self.least_count), *with_vector}
        in_order = [forest.labels[number] for number in dict.fromkeys(_words(forest).tolist())]
        return [word for word in in_order if word in known]

    def prepared(self, network: nn.Module, vocabulary: Vocabulary) -> nn.Module:
        """Return the network with the vectors of the file, or made to read those of sentences.

        The vectors of words in a checkpoint take the place of those of the file.
        """
        if self._vector_size is None:
            return network
        if self.contextual:
            network.read_features(self._vector_size)  # type: ignore[operator]
            return network
        vectors = torch.zeros(vocabulary.num_leaves, self._vector_size)
        if self.vectors is not None and vectors.device.type != "meta":
            files = self._files
            rows = [(row, files.words[word]) for row, word in enumerate(vocabulary.leaves) if word in files.words]
            if rows:
                leaf_rows, vector_rows = zip(*rows, strict=True)
                vectors[list(leaf_rows)] = torch.from_numpy(files.vectors[list(vector_rows)])
        WordVectors.put_into(network, vectors, tuned=self.tuned)
        return network

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return _NAMES[self.classes]

    def make_data(self, options: SentimentDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the sentences of the treebank; with two classes, those that are not neutral.

        Raises:
            RecipeError: the treebank is missing, or ``vector_size`` asks for vectors and no file is given.
            ParseError: a line of a file cannot be read.
        """
        if (self.vector_size is not None or self.contextual) and self.vectors is None:
            given = "contextual is true" if self.contextual else f"vector_size is {self.vector_size}"
            kind = "NumPy (.npy)" if self.contextual else "GloVe or word2vec"
            raise RecipeError(
                f"{given}, and there is no file of vectors; give one of {kind} with task_options.vectors=FILE"
            )
        return sentiment_data(self.treebank, self.classes, options)

    def parse(self, text: str) -> Tree:
        """Return the tree of a text: with classes, which are left out, or without, as in ``(X (X not bad) .)``.

        Words without brackets make a tree that branches to the right, for networks that read the words alone.

        Raises:
            ParseError: the text is empty or no tree.
        """
        text = decode_source(text).strip()
        if text[:1] == "(" and text[1:].lstrip()[:1].isdigit():
            tree = sentiment_forest([parse_sentiment_tree(text)])[0]
        elif text[:1] == "(":
            tree = parse_brackets(text)
        else:
            words = text.split()
            if not words:
                raise ParseError("the text is empty", text, 0, "a tree, or words separated by spaces")
            tree = Tree(words.pop())
            for word in reversed(words):
                tree = Tree(CONSTITUENT, [Tree(word), tree])
        return next(iter(lower_cased(Forest.from_trees([tree])))) if self.lower else tree

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        data = examples.forest
        classes = np.split(data.node_data["class"], data.begin[1:-1])
        trees = (format_sentiment(tree, numbers.tolist()) for tree, numbers in zip(data, classes, strict=True))
        return {"tree": trees, **self.split_and_group(examples)}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the trees of a file: lines as in the treebank, or records with a field ``tree``.

        With two classes, neutral sentences are left out.

        Raises:
            RecipeError: there is no such file, or no tree in it.
            ParseError: a record without a tree, or with another label than the root of its tree; with its line.
        """

        def read(record: Record) -> SentimentNodes:
            nodes = parse_sentiment_tree(text_of(record.fields, ("tree", "text")))
            given, of_root = number_text(record.fields.get("label")), nodes[-1][1]
            if given and given != str(of_root):
                label = root_classes(sentiment_forest([nodes]), self.classes)[0]
                if self.label_of(record.fields) != label:
                    problem = f"the label is {shown(given, 50)}, and the root of the tree has the class {of_root}"
                    raise ParseError(problem, expected="the same class, or no field 'label'")
            return nodes

        trees, splits = read_labelled(source, self.reader, read, self.unit, format=format)
        forest = sentiment_forest(trees)
        forest = forest.with_data(node_data=forest.node_data, tree_data=splits)
        forest = lower_cased(forest) if self.lower else forest
        kept = np.flatnonzero(root_classes(forest, self.classes) >= 0)
        if not len(kept):
            name = os.fspath(source)
            raise RecipeError(f"no sentence of {name} has a class; classes={self.classes} leaves neutral ones out")
        return forest[kept]

    def examples(self, data: Forest) -> Examples:
        """Return an example for each tree, with the classes of its nodes.

        Raises:
            RecipeError: an unknown split.
        """
        examples, label = super().examples(data), root_classes(data, self.classes)
        has_nodes = self.supervision == "nodes" and "class" in data.node_data
        nodes = {"nodes": node_classes(data, self.classes)} if has_nodes else {}
        return dataclasses.replace(
            examples, targets={"label": label, **nodes}, labelled=label >= 0, node_targets=frozenset(nodes)
        )

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the number of words."""
        length = _num_words(forest)
        return Groups(self.binned(length), length)

    def head(self, hidden_size: int) -> nn.Module:
        """Return a classifier of encodings, in training also of the states of nodes."""
        if self.supervision == "nodes":
            return PhraseHead(hidden_size, self.classes, dropout=self.dropout)
        return super().head(hidden_size)

    def loss(self, outputs: Tensor | PhraseLogits, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy over all labelled nodes, or over whole sentences."""
        if isinstance(outputs, Tensor):
            return super().loss(outputs, targets)
        label, nodes = targets["nodes"], outputs.nodes
        if nodes.dtype == torch.bfloat16:
            nodes = nodes.float()
        total = functional.cross_entropy(nodes, label, ignore_index=-1, reduction="sum")
        return SumCount(total, (label >= 0).sum())


class _Files(NamedTuple):
    """The treebank, and vectors, ``[vectors, width]``: of each of ``words``, or of each word of each sentence."""

    forest: Forest
    words: dict[str, int]
    vectors: NDArray[Any]


@lru_cache(maxsize=2)
def _read_files(path: str, vectors: str | None, contextual: bool, lower: bool, changed: tuple[int, ...]) -> _Files:
    """Read the files; again only if they have changed."""
    forest = read_treebank(path)
    forest = lower_cased(forest) if lower else forest
    if vectors is None:
        return _Files(forest, {}, np.empty((0, 0), np.float32))
    if not contextual:
        words = {forest.labels[number] for number in np.unique(_words(forest))}
        return _Files(forest, *read_word_vectors(vectors, words))
    is_word = forest.arity == 0
    mapped = map_contextual_vectors(vectors, int(is_word.sum()))
    return _Files(forest.with_vectors(mapped, np.where(is_word, np.cumsum(is_word) - 1, -1)), {}, mapped)


class PhraseLogits(NamedTuple):
    """The logits of every node of a batch, ``[nodes, classes]``."""

    nodes: Tensor


class PhraseHead(ClassifierHead):
    """A classifier that reads every node of a tree network in training, and the encodings otherwise."""

    def forward(self, states: Tensor | EncoderOutput) -> Any:
        """Return the logits ``[examples, classes]``, in training of a tree network those of all nodes."""
        if not (self.training and isinstance(states, TreeStates)):
            return super().forward(states)
        return PhraseLogits(self.classify(functional.dropout(states.outputs, self.dropout, self.training)))


def _words(forest: Forest) -> np.ndarray:
    """Return the label numbers of all leaves."""
    return forest.label[forest.arity == 0]


def _num_words(forest: Forest) -> np.ndarray:
    """Return the number of words of each tree, int64 ``[trees]``."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(forest.arity == 0, dtype=np.int64)])
    return total[forest.begin[1:]] - total[forest.begin[:-1]]
