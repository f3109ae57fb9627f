"""The task: whether a hypothesis follows from a premise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import nn

from treemem.checked_options import Count, Probability
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.heads import RelationHead
from treemem.networks import NetworkConfig, every_network
from treemem.task import Groups, TreeData
from treemem.task.pairs import PairClassification
from treemem.task.words import WordClassification
from treemem.tasks.entailment.readers import CLASS_NUMBERS, CLASSES, LABEL_FIELDS, UNDECIDED, PairRecords, pair_files
from treemem.trees.forest import Forest


@dataclass(frozen=True)
class EntailmentDataOptions:
    """The data have no options: they are the files of ``task_options.path``."""


@dataclass(frozen=True)
class Entailment(WordClassification, PairClassification):
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
    unit: ClassVar[str] = "pairs"
    group: ClassVar[str] = "length"
    group_width: ClassVar[int] = 10
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
    }
    class_names: ClassVar[tuple[str, ...]] = CLASSES
    class_numbers: ClassVar[Mapping[str, int]] = CLASS_NUMBERS
    label_fields: ClassVar[tuple[str, ...]] = LABEL_FIELDS
    written_sides: ClassVar[tuple[str, str]] = PairRecords.sides[0]
    missing: ClassVar[str] = (
        "entailment needs a folder of pairs, which do not come with treemem; give the folder of SNLI's "
        "snli_1.0_train.jsonl, snli_1.0_dev.jsonl and snli_1.0_test.jsonl with task_options.path=FOLDER"
    )

    path: str | None = None
    least_count: Count = 2
    dropout: Probability = 0.0

    def read_path(self, path: str) -> Forest:
        files = pair_files(path)
        parts = [self.read_examples(file) for file in files.values()]
        for file, part in zip(files.values(), parts, strict=True):
            if "split" in part.tree_data:
                raise RecipeError(f"{file} has a field 'split', but its name says which split it is; remove the field")
        label = np.concatenate([part.tree_data["label"] for part in parts])
        split = np.repeat([*files], [len(part) for part in parts])
        return Forest.concatenate(parts).with_data(tree_data={"label": label, "split": split})

    def make_data(self, options: EntailmentDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the pairs of the folder.

        Raises:
            RecipeError: there is no folder, or a file is missing.
            ParseError: a record of a file is no pair.
        """
        forest = self.sentences
        split, count = np.unique(forest.tree_data["split"][::2], return_counts=True)
        rows = zip(split, count.tolist(), strict=True)
        return TaskData(forest, data_card(f"# Entailment\n\nPairs of {self.path}.", ["split", "pairs"], rows))

    @property
    def reader(self) -> PairRecords:
        return PairRecords()

    def label_of(self, fields: Mapping[str, Any]) -> int | None:
        label = super().label_of(fields)
        return None if label == UNDECIDED else label

    def side_texts(self, forest: Forest) -> list[str]:
        return [" ".join(words) for words in forest.tokens("bracketed leaves").strings()]

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the words of both sentences."""
        length = np.add.reduceat(forest.arity == 0, forest.begin[:-1:2], dtype=np.int64)
        return Groups(self.binned(length), length)

    def head(self, hidden_size: int) -> nn.Module:
        """Return a comparison layer and a classifier of the two encodings."""
        return RelationHead(hidden_size, len(CLASSES), features="differences", activation="relu", dropout=self.dropout)
