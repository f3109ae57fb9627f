"""The task: predict each word of a text from the words before it."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from treemem.checked_options import Count
from treemem.data.data_card import data_card
from treemem.data.examples import (
    PADDING,
    Examples,
    SequenceExamples,
    StreamExamples,
    TaskData,
    ids_of_labels,
    split_numbers,
    unknown_token,
)
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.errors import ParseError, RecipeError, shown
from treemem.metrics.accuracy import perplexity_scores
from treemem.metrics.score import Monitor, PublishedFigure, Score
from treemem.networks import NetworkConfig
from treemem.networks.sequences.language_model.layer import END
from treemem.records import Record
from treemem.task import Answer, ModelOutput
from treemem.task.sequences import TokenTask
from treemem.tasks.language_modeling.data import LanguageDataOptions, grammar_data, leaf_nodes, with_ends
from treemem.tasks.language_modeling.generation.english import english_grammar
from treemem.tasks.language_modeling.published import PTB, PUBLISHED
from treemem.tasks.language_modeling.readers import (
    LINES,
    Corpus,
    is_prepared,
    prepared_lines,
    read_corpus,
    read_prepared,
    read_treebank,
)
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import SPLITS, text_of
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    small = {"hidden_size": 200, "num_layers": 2, "dropout": 0.2, "input_dropout": 0.2, "output_dropout": 0.2}
    return {
        "ON-LSTM": NetworkConfig("LanguageModel", {**small, "chunk_size": 10}),
        "LSTM": NetworkConfig("LanguageModel", {**small, "cell": "LSTM"}),
        "PRPN": NetworkConfig("PRPN", small),
        **PTB,
    }


def _number_of(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a field that is a number, or None without it.

    Raises:
        ParseError: it is something else.
    """
    value = fields.get(name)
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ParseError(f"the field {name!r} is {shown(value, 60)}", expected="a number") from None


@dataclass(frozen=True)
class LanguageModeling(TokenTask):
    """Predict the next word of a text: sentences of a grammar of English, or files.

    Data are forests whose leaves are words: flat trees, or trees of sentences, which the network does not see. The
    sentences of a split, with ``<eos>`` after each, are one stream. Columns of it run side by side, and the state is
    carried from batch to batch (truncated backpropagation through time). The network's outputs are the logits
    ``[columns, steps, words]``, as :class:`~treemem.nn.LanguageModel` returns them.

    A model predicts for each text, on its own, the log probability of its words and its end, in nats.

    Args:
        path: a folder with a training, validation and test text; see
            :func:`~treemem.tasks.language_modeling.readers.corpus_files`. Or a folder that
            :mod:`treemem.tasks.language_modeling.prepare` has made of one: its text stays in its file. None: the
            grammar.
        treebank: whether the files have trees in brackets instead of lines of words; then ``path`` may also be one
            file. See :func:`~treemem.tasks.language_modeling.readers.read_treebank`.
        more_text: with ``treebank``: a file of sentences, one a line, that training reads, too.
        words: the number of words of the grammar (1000 by default); of a text, the most words of its vocabulary (by
            default all).
        steps: words of a column in a batch.
        varied_steps: whether the batches of training have different numbers of words; see
            :class:`~treemem.data.loader.StreamLoader`. Then the learning rate of a step is that of the options times
            the number of words divided by ``steps``.
        evaluation_columns: columns in evaluation. With fewer, more words have all the words before them as context.

    Raises:
        RecipeError: an option outside its range, or a missing file.
        ParseError, VocabularyError: a line of the files that cannot be read, or an unknown word in it.
    """

    name: ClassVar[str] = "language_modeling"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "sentences"
    group: ClassVar[str] = "text"
    monitor: ClassVar[Monitor] = Monitor("perplexity", "min", percent=False)
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = LanguageDataOptions
    file_options: ClassVar[frozenset[str]] = frozenset({"path", "treebank", "more_text"})
    text_columns: ClassVar[tuple[str, ...]] = ("text",)
    record_fields: ClassVar[Mapping[str, str]] = {
        "text": "words separated by spaces; or",
        "tree": "the sentence as a tree in brackets",
        "log_probability": "of the sentence, in nats; may be left out",
    }
    scoring_options: ClassVar[frozenset[str]] = frozenset({"evaluation_columns"})
    learner: ClassVar[Any] = "treemem.tasks.language_modeling.learner:StreamLearner"

    path: str | None = None
    treebank: bool = False
    more_text: str | None = None
    words: Count | None = None
    steps: Count = 70
    varied_steps: bool = True
    evaluation_columns: Count = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.more_text is not None and not (self.treebank and self.path is not None):
            raise RecipeError("more_text is read beside the trees of path, with treebank=True")

    @cached_property
    def corpus(self) -> Corpus | None:
        """The text of ``path``; None without it."""
        if self.path is None:
            return None
        if self.treebank:
            return read_treebank(self.path, self.words, self.more_text)
        if is_prepared(self.path):
            return read_prepared(self.path, self.words)
        return read_corpus(self.path, self.words)

    @property
    def grammar_words(self) -> int:
        """The number of words of the grammar."""
        return 1000 if self.words is None else self.words

    @property
    def vocabulary(self) -> Vocabulary:
        """``<eos>`` (id 0) and the words of the grammar or of the training text."""
        if self.corpus is None:
            return Vocabulary([END, *english_grammar(self.grammar_words).words], [])
        return self.corpus.vocabulary

    def group_name(self, group: int) -> str:
        return ""

    def make_data(self, options: LanguageDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the sentences of the grammar that ``options`` ask for, or the text of the files."""
        if self.corpus is None and self.treebank:
            raise RecipeError("treebank=True reads trees; name their folder or file with task_options.path")
        if self.corpus is None:
            return grammar_data(self.grammar_words, options)
        forest = self.corpus.forest
        split = forest.tree_data["split"]
        if LINES in forest.tree_data:
            lines = forest.tree_data[LINES]
            words = np.diff(forest.begin) - lines
        else:
            words = np.diff(leaf_nodes(forest)[1])
            lines = np.ones_like(words)
        rows = [[name, lines[split == name].sum(), words[split == name].sum()] for name in SPLITS]
        different = self.corpus.vocabulary.num_leaves - 1
        about = f"# Language modelling\n\nThe text of {self.path}, with {different} different words."
        return TaskData(forest, data_card(about, ["split", "lines", "words"], rows))

    def parse(self, text: str) -> Tree:
        """Return the sentence of a text, words separated by spaces, as a flat tree.

        Raises:
            ParseError: a text without words.
        """
        text = decode_source(text)
        words = text.split()
        if not words:
            raise ParseError("the text is empty", text, 0, "words separated by spaces")
        return Tree(SEQUENCE, [Tree(word) for word in words])

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``text``, ``tree`` if sentences have trees, and what else is known of each sentence."""
        if LINES in data.tree_data:
            yield from ({"text": " ".join(words), "split": split} for split, words in prepared_lines(data))
            return
        known = [name for name in ("split", "log_probability") if name in data.tree_data]
        for place, tree in enumerate(data):
            words = [leaf.label for leaf in (tree.children if data.is_flat else tree.leaves())]
            tree_field = {} if data.is_flat else {"tree": str(tree)}
            yield {
                "text": " ".join(words),
                **tree_field,
                **{name: data.tree_data[name][place].item() for name in known},
            }

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the sentences of a file: as trees if its first record has a field ``tree``, else as flat trees.

        Files of a corpus, ``.tokens`` and ``.raw``, are text in which a blank line is a sentence without words.

        Raises:
            RecipeError: there is no such file, or no sentence in it.
            ParseError: a record without a sentence, or with an unknown split; with its line.
        """
        is_corpus = format is None and os.fspath(source).removesuffix(".gz").endswith((".tokens", ".raw"))
        column = ""

        def read(record: Record) -> tuple[Tree, float | None]:
            nonlocal column
            column = column or ("text" if record.fields.get("tree") is None else "tree")
            text = text_of(record.fields, [column])
            if is_corpus and not text.strip():
                return Tree(SEQUENCE), None
            tree = parse_brackets(text) if column == "tree" else self.parse(text)
            return tree, _number_of(record.fields, "log_probability")

        sentences, known = read_labelled(
            source,
            self.reader,
            read,
            self.unit,
            format="text" if is_corpus else format,
            skip_blank_lines=False,
        )
        trees, values = zip(*sentences, strict=True)
        if None not in values:
            known["log_probability"] = np.array(values, np.float64)
        return Forest.from_trees(trees, tree_data=known)

    def examples(self, data: Forest) -> StreamExamples:
        """Return the sentences of a forest as a stream."""
        every = np.ones(len(data), bool)
        names = {"log_probability"} & data.tree_data.keys()
        prepared = LINES in data.tree_data
        stream = PreparedStream if prepared else SentenceStream
        return stream(
            data if prepared else with_ends(data, begin=False),
            1,
            {name: data.tree_data[name] for name in names},
            np.zeros(len(data), np.int64),
            every,
            split_numbers(data.tree_data.get("split")),
            steps=self.steps,
            varied_steps=self.varied_steps,
            evaluation_columns=self.evaluation_columns,
        )

    def examples_to_predict(self, data: Forest) -> Examples:
        """Return the sentences, each on its own between two ``<eos>``."""
        none = np.zeros(len(data), np.int64)
        return SequenceExamples(with_ends(data, begin=True), 1, {}, none, np.ones(len(data), bool))

    def kept(self, output: ModelOutput, batch: TokenBatch, targets: Mapping[str, Tensor]) -> Tensor:
        """Return the negative log likelihood and the number of words, ``[columns or sentences, 2]``."""
        tokens = targets.get("tokens")
        if tokens is None:  # a sentence on its own: each word from those before it
            longest = batch.token.shape[1]
            is_last = torch.arange(longest) >= batch.lengths[:, None] - 1
            following = functional.pad(batch.token[:, 1:], (0, 1))
            tokens = following.masked_fill(to_device(is_last, following.device), PADDING)
        loss = functional.cross_entropy(
            output.outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="none"
        )
        counts = (tokens != PADDING).sum(1)
        return torch.stack([loss.view_as(tokens).sum(1, dtype=torch.float64), counts.double()], 1)

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return perplexity and loss, the mean negative log likelihood of a word, ends of sentences included.

        Examples are sentences, if they are known, else pieces of columns.

        If the data have the probabilities of the sentences, ``least perplexity`` is that of the grammar.
        """
        scores = perplexity_scores(kept[:, 0].double().numpy(), kept[:, 1].long().numpy(), group)
        if "num_words" in targets:
            scores = [dataclasses.replace(score, examples=len(targets["num_words"])) for score in scores]
        if LINES in targets:
            scores = [dataclasses.replace(score, examples=int(targets[LINES].sum())) for score in scores]
        if "log_probability" not in targets:
            return scores
        least = math.exp(-targets["log_probability"].sum() / targets["num_words"].sum())
        return [dataclasses.replace(score, metrics={**score.metrics, "least perplexity": least}) for score in scores]

    def answers(self, kept: Tensor, targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the log probability of each text and its end, in nats."""
        return [Answer(None if math.isnan(loss) else -loss, None) for loss, _ in kept.tolist()]


@dataclass(frozen=True, eq=False)
class SentenceStream(StreamExamples):
    """A stream of sentences, of which the scores of a part may use what is known about each."""

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        known = {name: array[chosen] for name, array in self.targets.items()}
        return {**known, "num_words": np.diff(self.forest.begin)[chosen] - 1}


@dataclass(frozen=True, eq=False)
class PreparedStream(StreamExamples):
    """A prepared text, whose nodes are the stream: the last ``<eos>`` of a tree is its root."""

    def stream(
        self, vocabulary: Vocabulary, chosen: NDArray[np.int64]
    ) -> tuple[NDArray[np.integer], NDArray[np.int64] | None]:
        forest = self.forest
        ids = ids_of_labels(forest.labels, vocabulary)
        if (ids < 0).any():
            raise unknown_token(forest.labels[int(ids.argmin())], vocabulary)
        return forest[chosen].label, ids

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {LINES: self.forest.tree_data[LINES][chosen]}
