"""The task: which entity of a document a query leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from treemem.checked_options import Count, Probability
from treemem.data.examples import Examples, TaskData
from treemem.errors import ParseError
from treemem.heads import RelationHead
from treemem.metrics.score import Monitor
from treemem.networks import NetworkConfig, every_network
from treemem.task import Groups, TreeData
from treemem.task.pairs import PairClassification
from treemem.task.words import WordClassification
from treemem.tasks.reading.data import ReadingDataOptions, make_questions, read_questions
from treemem.tasks.reading.documents import PLACEHOLDER, WORDS
from treemem.tasks.reading.readers import QuestionRecords, question_files, read_published
from treemem.trees.forest import Forest
from treemem.trees.pairs import with_pair_data


@dataclass(frozen=True)
class Reading(WordClassification, PairClassification):
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
    unit: ClassVar[str] = "questions"
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
    }
    label_fields: ClassVar[tuple[str, ...]] = ("answer",)

    path: str | None = None
    num_entities: Count = 20
    least_count: Count = 2
    dropout: Probability = 0.0

    @property
    def class_names(self) -> tuple[str, ...]:
        """The entity markers."""
        return tuple(f"@entity{number}" for number in range(self.num_entities))

    def read_path(self, path: str) -> Forest:
        if not Path(path).is_dir():
            return self.read_examples(path)
        texts, labels, splits = [], [], []
        for split, files in question_files(path).items():
            for file in files:
                try:
                    fields = read_published(file)
                    texts += self.reader.texts(fields)
                    labels.append(self.label_of(fields))
                except ParseError as error:
                    raise error.at(1, str(file)) from error
            splits += [split] * len(files)
        return with_pair_data(self.reader.forest(texts), {"label": np.array(labels), "split": np.array(splits)})

    def words(self) -> list[str]:
        """Return the placeholder, the entity markers, and the words of the sentences or the known ones of files."""
        return [PLACEHOLDER, *self.class_names, *([*WORDS, "."] if self.path is None else super().words())]

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
        return read_questions(self.sentences, self.path, self.class_names)

    @property
    def reader(self) -> QuestionRecords:
        return QuestionRecords()

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        columns = super().columns_of(examples)
        return {name: columns.pop(name) for name in self.written_sides} | columns

    def side_texts(self, forest: Forest) -> list[str]:
        return [" ".join(words) for words in forest.tokens("leaves").strings()]

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the words of the document, for a group up to the next power of two."""
        words = (np.diff(forest.begin)[::2] + 1) // 2  # a binary tree of n words has 2 n - 1 nodes
        return Groups(2 ** np.ceil(np.log2(np.maximum(words, 1))).astype(np.int64), words)

    def head(self, hidden_size: int) -> nn.Module:
        """Return a comparison layer and a classifier of the two encodings."""
        return RelationHead(hidden_size, self.num_entities, features="differences", dropout=self.dropout)
