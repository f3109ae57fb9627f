"""The task: which entity of a document a query leaves out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from treemem.checked_options import Count, Probability, check_fields
from treemem.data.examples import Examples, TaskData, label_numbers, split_numbers
from treemem.errors import ParseError
from treemem.heads import ClassifierHead, RelationHead
from treemem.metrics.score import Monitor
from treemem.networks import NetworkConfig, every_network
from treemem.task import ClassificationTask
from treemem.tasks.known_words import known_words
from treemem.tasks.reading.data import ReadingDataOptions, make_questions, read_questions
from treemem.tasks.reading.documents import PLACEHOLDER, WORDS
from treemem.tasks.reading.readers import FIELDS, QuestionRecords, question_tree, read_file, read_folder
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.formats.source_text import decode_source
from treemem.trees.pairs import separate_pairs
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

UNKNOWN = "<unk>"
_LABEL = "the number of the answer's entity marker, or -1 (not known), for each text"


@dataclass(frozen=True)
class Reading(ClassificationTask):
    """Which entity of a document belongs in place of the query's placeholder (Hermann et al. 2015), by length.

    Entities are anonymous: ``@entity0``, ``@entity1``, ..., drawn at random for each document, so that nothing is to be
    known about them. A network chooses among all markers, not only among those of the document; in the paper, among
    all words.

    Data are forests of two adjacent binary trees over words, document and query. ``tree_data`` has one entry for each
    text: ``label``, the number of the answer's marker (-1 if it is not known), and ``split`` if they are divided.

    Args:
        path: read these questions instead of drawing them: a file with the fields ``document``, ``query``, ``answer``
            and ``split``, or a folder in the published form of the CNN and Daily Mail questions. A checkpoint needs no
            path.
        num_entities: number of entity markers.
        least_count: a word of files is known if the training questions have it so often. Others are read as ``<unk>``.
        dropout: of the head.

    Raises:
        RecipeError: an option outside its range.
    """

    name: ClassVar[str] = "reading"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")  # as the recorded results were chosen
    networks: ClassVar[Mapping[str, NetworkConfig]] = {
        **every_network(128),
        "Attentive Reader": NetworkConfig("AttentiveReader", {"hidden_size": 128}),
        "Impatient Reader": NetworkConfig("ImpatientReader", {"hidden_size": 128}),
        "Deep LSTM Reader": NetworkConfig("DeepLSTMReader", {"hidden_size": 128}),
        "word-by-word attention": NetworkConfig("WordByWordAttention", {"hidden_size": 128}),
        "Transformer": NetworkConfig(
            "Transformer", {"hidden_size": 128, "num_heads": 8, "num_layers": 4, "joint": True}
        ),
    }
    data_options: ClassVar[type] = ReadingDataOptions
    text_columns: ClassVar[tuple[str, ...]] = QuestionRecords.text_fields
    record_fields: ClassVar[Mapping[str, str]] = {
        "document, query": f"words separated by spaces (or context, question); the query has {PLACEHOLDER}",
        "answer": "an entity marker, such as @entity3; treemem predict does not need it",
        "split": "train, validation or test; may be left out",
    }

    path: str | None = None
    num_entities: Count = 20
    least_count: Count = 2
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain data, without the path."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "path"}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The entity markers."""
        return tuple(f"@entity{number}" for number in range(self.num_entities))

    @cached_property
    def _questions(self) -> Forest:
        assert self.path is not None
        read = read_folder if Path(self.path).is_dir() else read_file
        return read(self.path, self.class_names)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """``<unk>``, the placeholder, the entity markers, and the words of the sentences or the known ones of files."""
        words: list[str] = [*WORDS, "."]
        if self.path is not None:
            words = known_words(self._questions, self.least_count)
        leaves = dict.fromkeys([UNKNOWN, PLACEHOLDER, *self.class_names, *words])
        return Vocabulary(list(leaves), [(CONSTITUENT, 2)], unknown=UNKNOWN)

    @property
    def token_form(self) -> TokenForm:
        """The leaves, which are the words."""
        return "leaves"

    def group_name(self, group: int) -> str:
        """Return the range of words of a document, such as ``"33-64"``."""
        return f"{group // 2 + 1}-{group}" if group > 1 else "1"

    def make_data(self, options: ReadingDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return drawn questions, or with ``path`` those of the files; then the data options say nothing.

        Raises:
            RecipeError: more entities than markers; a file is missing.
            ParseError: a record of a file is no question.
        """
        if self.path is None:
            return make_questions(options, self.class_names)
        return read_questions(self._questions, self.path, self.class_names)

    def parse(self, text: str) -> Tree:
        """Return the question ``DOCUMENT<TAB>QUERY`` as a tree whose root joins the two.

        Raises:
            ParseError: there are not two texts, one of them is empty, or the query has no placeholder.
        """
        text = decode_source(text)
        sides = text.split("\t")
        if len(sides) != 2:
            raise ParseError(f"the text has {len(sides) - 1} tabs", text, 0, "DOCUMENT<TAB>QUERY")
        return question_tree(*sides)

    @property
    def reader(self) -> QuestionRecords:
        return QuestionRecords()

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the questions of a file; see :func:`~treemem.tasks.reading.readers.read_file`."""
        return read_file(source, self.class_names, format=format)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``document``, ``query``, ``answer``, and ``split``."""
        examples = self.examples(data)
        texts = [" ".join(words) for words in examples.forest.tokens("leaves").strings()]
        for place, sides in enumerate(zip(texts[::2], texts[1::2], strict=True)):
            label = int(examples.targets["label"][place])
            split = {} if examples.split is None else {"split": SPLITS[examples.split[place]]}
            answer = self.class_names[label] if label >= 0 else None
            yield {**dict(zip(FIELDS[0], sides, strict=True)), "answer": answer, **split}

    def examples(self, data: Forest) -> Examples:
        """Return the questions of a forest of documents and queries, or of trees that join two.

        Raises:
            GraphError: a document without a query.
            RecipeError: an unknown split.
        """
        data, tree_data = separate_pairs(data, QuestionRecords.unit)
        label = label_numbers(tree_data.get("label"), len(data) // 2, self.num_entities, _LABEL)
        words = (np.diff(data.begin)[::2] + 1) // 2  # a binary tree of n words has 2 n - 1 nodes
        group = 2 ** np.ceil(np.log2(np.maximum(words, 1))).astype(np.int64)
        split = split_numbers(tree_data.get("split"))
        return Examples(data, 2, {"label": label}, group, label >= 0, split, difficulty=words)

    def head(self, hidden_size: int) -> nn.Module:
        """Return a comparison layer and a classifier of the two encodings."""
        return RelationHead(hidden_size, self.num_entities, features="differences", dropout=self.dropout)

    def joint_head(self, hidden_size: int) -> nn.Module:
        """Return a classifier of the one encoding of a pair."""
        return ClassifierHead(hidden_size, self.num_entities, dropout=self.dropout)
