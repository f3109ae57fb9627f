"""The task: whether a hypothesis follows from a premise."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from torch import nn

from treemem.checked_options import Count, Probability, check_fields
from treemem.data.examples import Examples, TaskData, label_numbers, split_numbers
from treemem.errors import ParseError, RecipeError
from treemem.heads import ClassifierHead, RelationHead
from treemem.networks import NetworkConfig, every_network
from treemem.task import ClassificationTask
from treemem.tasks.entailment.readers import CLASSES, SIDES, PairRecords, pair_tree, read_folder, read_pairs
from treemem.tasks.known_words import known_words
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.formats.source_text import decode_source
from treemem.trees.pairs import separate_pairs
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

UNKNOWN = "<unk>"
_LABEL = "the place of a class among entailment, neutral, contradiction, or -1 (not said), for each sentence"


@dataclass(frozen=True)
class EntailmentDataOptions:
    """The data have no options: they are the files of ``task_options.path``."""


@dataclass(frozen=True)
class Entailment(ClassificationTask):
    """Whether a premise entails a hypothesis, contradicts it, or neither (SNLI, Bowman et al. 2015), by length.

    Data are forests of two adjacent binary trees over words a pair. ``tree_data`` has one entry a sentence, the same
    for both of a pair: ``label``, an index into the classes (-1 if it is not known), and ``split`` if they are divided.

    Args:
        path: the folder of ``*train.jsonl``, ``*dev.jsonl`` and ``*test.jsonl`` (or ``.txt``, ...). A checkpoint needs
            none.
        least_count: a word is known if the training sentences have it so often. Others are read as ``<unk>``.
        dropout: of the head.

    Raises:
        RecipeError: an option outside its range.
    """

    name: ClassVar[str] = "entailment"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"
    networks: ClassVar[Mapping[str, NetworkConfig]] = {
        **every_network(100),
        "word-by-word attention": NetworkConfig("WordByWordAttention", {"hidden_size": 100}),
        "Transformer": NetworkConfig(
            "Transformer", {"hidden_size": 96, "num_heads": 8, "num_layers": 4, "joint": True}
        ),
    }
    data_options: ClassVar[type] = EntailmentDataOptions
    text_columns: ClassVar[tuple[str, ...]] = PairRecords.text_fields
    record_fields: ClassVar[Mapping[str, str]] = {
        "sentence1, sentence2": "the sentences (or sentence1_binary_parse, ..., in brackets; or premise, hypothesis)",
        "gold_label": f"one of {', '.join(CLASSES)}, or 0, 1, 2 (or label); pairs with - or -1 are left out",
        "split": "train, validation or test; may be left out",
    }

    path: str | None = None
    least_count: Count = 2
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def options(self) -> dict[str, Any]:
        """The options as plain data, without the folder."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "path"}

    @cached_property
    def _pairs(self) -> Forest:
        if self.path is None:
            raise RecipeError(
                "entailment needs a folder of pairs, which do not come with treemem; give the folder of SNLI's "
                "snli_1.0_train.jsonl, snli_1.0_dev.jsonl and snli_1.0_test.jsonl with task_options.path=FOLDER"
            )
        return read_folder(self.path)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """``<unk>`` and the known words, in the order of their first places; without ``path`` there are no words."""
        words = [] if self.path is None else known_words(self._pairs, self.least_count)
        return Vocabulary(list(dict.fromkeys([UNKNOWN, *words])), [(CONSTITUENT, 2)], unknown=UNKNOWN)

    @property
    def token_form(self) -> TokenForm:
        """The leaves, which are the words."""
        return "leaves"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes."""
        return CLASSES

    def group_name(self, group: int) -> str:
        """Return the range of words of both sentences, such as ``"11-20"``."""
        return f"{group - 9}-{group}"

    def make_data(self, options: EntailmentDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the pairs of the folder.

        Raises:
            RecipeError: there is no folder, or a file is missing.
            ParseError: a record of a file is no pair.
        """
        forest = self._pairs
        split, count = np.unique(forest.tree_data["split"][::2], return_counts=True)
        rows = "".join(f"| {name} | {number} |\n" for name, number in zip(split, count.tolist(), strict=True))
        return TaskData(forest, f"# Entailment\n\nPairs of {self.path}.\n\n| split | pairs |\n|---|---|\n{rows}")

    def parse(self, text: str) -> Tree:
        """Return the pair ``PREMISE<TAB>HYPOTHESIS`` as a tree whose root joins the two sentences.

        Raises:
            ParseError: there are not two sentences, or one of them is empty or no binary tree.
        """
        text = decode_source(text)
        sides = text.split("\t")
        if len(sides) != 2:
            raise ParseError(f"the text has {len(sides) - 1} tabs", text, 0, "PREMISE<TAB>HYPOTHESIS")
        return pair_tree(*sides)

    @property
    def reader(self) -> PairRecords:
        return PairRecords()

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the pairs of a file; see :func:`~treemem.tasks.entailment.readers.read_pairs`."""
        return read_pairs(source, format=format)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with both sentences as trees in brackets, ``gold_label``, and ``split``."""
        examples = self.examples(data)
        sides = [" ".join(words) for words in examples.forest.tokens("bracketed leaves").strings()]
        for place, pair in enumerate(zip(sides[::2], sides[1::2], strict=True)):
            label = int(examples.targets["label"][place])
            split = {} if examples.split is None else {"split": SPLITS[examples.split[place]]}
            named = dict(zip(SIDES[0], pair, strict=True))
            yield {"gold_label": CLASSES[label] if label >= 0 else None, **named, **split}

    def examples(self, data: Forest) -> Examples:
        """Return the pairs of a forest of sentences, or of trees that join two.

        Raises:
            GraphError: a sentence without a second one.
            RecipeError: an unknown split.
        """
        data, tree_data = separate_pairs(data, PairRecords.unit)
        label = label_numbers(tree_data.get("label"), len(data) // 2, len(CLASSES), _LABEL)
        length = np.add.reduceat(data.arity == 0, data.begin[:-1:2], dtype=np.int64)
        split = split_numbers(tree_data.get("split"))
        return Examples(data, 2, {"label": label}, -(-length // 10) * 10, label >= 0, split, difficulty=length)

    def head(self, hidden_size: int) -> nn.Module:
        """Return a comparison layer and a classifier of the two encodings."""
        return RelationHead(hidden_size, len(CLASSES), features="differences", activation="relu", dropout=self.dropout)

    def joint_head(self, hidden_size: int) -> nn.Module:
        """Return a classifier of the one encoding of a pair."""
        return ClassifierHead(hidden_size, len(CLASSES), dropout=self.dropout)
