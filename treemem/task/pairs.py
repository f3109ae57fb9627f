"""Tasks whose answer is a class of a pair of trees."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from torch import nn

from treemem.data.examples import Examples, split_column
from treemem.errors import ParseError
from treemem.heads import ClassifierHead
from treemem.records import Record
from treemem.task.classification import ClassificationTask
from treemem.task.interface import Groups, TreeData
from treemem.trees.forest import Forest
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.source_text import decode_source
from treemem.trees.pairs import PairReader, separate_pairs, with_pair_data
from treemem.trees.tree import Tree


class PairClassification(ClassificationTask):
    """A class for each pair of trees, such as two sentences.

    Data are forests of two adjacent trees a pair, or of trees whose root joins two. ``tree_data`` has one entry for
    each tree, the same for both of a pair.

    A subclass has at least a vocabulary, class names, :meth:`make_data`, :meth:`head` and a :attr:`reader`.
    """

    trees_per_example: ClassVar[int] = 2

    @property
    @abstractmethod
    def reader(self) -> PairReader:
        """What reads pairs out of a user's records."""

    @property
    def written_sides(self) -> tuple[str, str]:
        """The fields that written records have for the two trees."""
        return self.reader.text_sides

    def parse(self, text: str) -> Tree:
        """Return the pair of a text, two parts with a tab between them, as a tree whose root joins the two.

        Raises:
            ParseError: there are not two parts, or one of them is no tree.
        """
        text = decode_source(text)
        parts, names = text.split("\t"), self.reader.text_sides
        if len(parts) != 2:
            raise ParseError(f"the text has {len(parts) - 1} tabs", text, 0, "<TAB>".join(names).upper())
        return self.reader.pair(dict(zip(names, parts, strict=True)))

    def separated(self, data: Forest) -> tuple[Forest, TreeData]:
        """Return the two trees of each pair, adjacent, and what is known of each pair.

        Raises:
            GraphError: a tree without a second one.
        """
        return separate_pairs(data, self.reader.unit)

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return by default the height of the higher tree of each pair."""
        height = forest.height()[forest.begin[1:] - 1].astype(np.int64).reshape(-1, 2).max(1)
        return Groups(self.binned(height), height)

    def columns_of(self, examples: Examples) -> dict[str, Iterable[Any]]:
        texts = self.side_texts(examples.forest)
        sides = dict(zip(self.written_sides, (texts[::2], texts[1::2]), strict=True))
        return {**self.label_column(examples), **sides, **split_column(examples)}

    def side_texts(self, forest: Forest) -> list[str]:
        """Return the text of each tree."""
        return [self.format(tree) for tree in forest]

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        reader = self.reader

        def read(record: Record) -> tuple[list[str], int, int] | None:
            label = self.label_of(record.fields)
            return None if label is None else (reader.texts(record.fields), label, record.line)

        pairs, known = read_labelled(source, reader, read, self.unit, format=format)
        texts, labels, lines = zip(*pairs, strict=True)
        forest = reader.forest([*chain.from_iterable(texts)], os.fspath(source), np.repeat(lines, 2).tolist())
        return with_pair_data(forest, {"label": np.array(labels, np.int64), **known})

    def joint_head(self, hidden_size: int) -> nn.Module:
        """Return a classifier of the one encoding of a pair."""
        return ClassifierHead(hidden_size, self.num_classes, dropout=self.dropout)
