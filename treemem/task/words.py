"""Tasks whose trees are sentences of the user's files, with the words that are frequent enough as vocabulary."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from treemem.errors import RecipeError
from treemem.task.classification import ClassificationTask
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.tokens import TokenForm
from treemem.trees.vocabulary import Vocabulary

UNKNOWN = "<unk>"
"""The word that stands for unknown ones."""


def known_words(forest: Forest, least_count: int) -> list[str]:
    """Return the words that the training sentences have at least ``least_count`` times, in the order of the labels.

    Args:
        forest: sentences as trees whose leaves are words. Without splits all of them are training sentences.
        least_count: how often.
    """
    split = forest.tree_data.get("split", np.full(len(forest), SPLITS[0]))
    training = forest[np.flatnonzero(split == SPLITS[0])]
    count = np.bincount(training.label[training.arity == 0], minlength=len(forest.labels))
    return [word for word, times in zip(forest.labels, count.tolist(), strict=True) if times >= least_count]


class WordClassification(ClassificationTask):
    """A class for each example of binary trees over words, which the user's files have.

    A subclass has the options ``path`` and ``least_count``. A model stores the words, so it needs no path.

    Attributes:
        missing: the error without ``path``: which files the task needs.
        path: of the files.
        least_count: a word is known if the training sentences have it so often. Others are read as ``<unk>``.
    """

    file_options: ClassVar[frozenset[str]] = frozenset({"path"})
    missing: ClassVar[str]
    token_form: ClassVar[TokenForm] = "leaves"
    path: str | None
    least_count: int

    @abstractmethod
    def read_path(self, path: str) -> Forest:
        """Return the sentences of the user's files, with their splits."""

    @cached_property
    def sentences(self) -> Forest:
        """The sentences of the user's files.

        Raises:
            RecipeError: ``path`` is not given, or a file is missing.
            ParseError: a file cannot be read.
        """
        if self.path is None:
            raise RecipeError(self.missing)
        return self.read_path(self.path)

    def words(self) -> list[str]:
        """Return the words of the vocabulary after ``<unk>``; without ``path`` there are none."""
        return [] if self.path is None else known_words(self.sentences, self.least_count)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(list(dict.fromkeys([UNKNOWN, *self.words()])), [(CONSTITUENT, 2)], unknown=UNKNOWN)
