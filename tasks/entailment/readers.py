"""Read pairs of sentences from files in SNLI's format."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from treemem.errors import ParseError, RecipeError
from treemem.task.registered import TASKS
from treemem.trees.forest import Forest
from treemem.trees.formats.bracketed_lines import forest_of_bracketed
from treemem.trees.pairs import PairReader
from treemem.trees.tree import Tree

CLASSES = ("entailment", "neutral", "contradiction")
LABEL_FIELDS = ("gold_label", "label")
UNDECIDED = -2
"""The number of the label of pairs that the annotators did not agree on."""
_HIDDEN = ("", "hidden")
"""Labels of test files that do not tell them."""
CLASS_NUMBERS = {
    **dict.fromkeys(_HIDDEN, -1),
    **{name: number for number, name in enumerate(CLASSES)},
    **{str(number): number for number in range(len(CLASSES))},
    **dict.fromkeys(("-", "-1"), UNDECIDED),
}
_WORD = re.compile(r"\w+|[^\w\s()]")
_BRACKET = re.compile(r"[()]")
_FILES = {"train": ("train",), "validation": ("dev", "dev_matched"), "test": ("test", "dev_mismatched")}
"""How the names of files end, for each split: those of SNLI, and those of MultiNLI, whose test files have no labels."""
_SUFFIXES = (".jsonl", ".txt", ".tsv", ".csv", ".parquet")


def bracketed(text: str) -> str:
    """Return a sentence as a binary tree in brackets: as it is, or with its words branching to the right.

    Raises:
        ParseError: there is no word.
    """
    if _is_bracketed(text.strip()):
        return text
    words = _WORD.findall(text)
    if not words:
        raise ParseError("the sentence is empty", text, 0, "words, or a binary tree in brackets")
    return "".join(f"( {word} " for word in words[:-1]) + words[-1] + " )" * (len(words) - 1)


def _is_bracketed(text: str) -> bool:
    """Whether a text is in one pair of brackets, unlike ``(Outside) a man sings (loudly)``."""
    depths = list(itertools.accumulate(1 if bracket == "(" else -1 for bracket in _BRACKET.findall(text)))
    return text[:1] == "(" and 0 not in depths[:-1] and (text[-1] == ")" or depths[-1] != 0)


@dataclass
class PairRecords(PairReader):
    """Reads pairs of sentences from records, with or without labels. A text line is ``PREMISE<TAB>HYPOTHESIS``."""

    unit: ClassVar[str] = "sentences"
    text_fields: ClassVar[tuple[str, ...]] = ("premise", "hypothesis", "label")
    sides: ClassVar[tuple[tuple[str, str], ...]] = (
        ("sentence1_binary_parse", "sentence2_binary_parse"),
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
    )

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        """Return the names of the columns if a text line is a header: it names two sentences, and maybe more."""
        return parts if any({*names} <= {*parts} for names in self.sides) else None

    def texts(self, fields: Mapping[str, Any]) -> list[str]:
        """Return premise and hypothesis as trees in brackets."""
        return [bracketed(text) for text in super().texts(fields)]

    def trees(self, texts: Sequence[str]) -> list[Tree]:
        return list(self.forest(texts))

    def forest(self, texts: Sequence[str], source: str = "", lines: Sequence[int] | None = None) -> Forest:
        return forest_of_bracketed(texts, source=source, lines=lines)


def pair_files(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the files ``*train.jsonl``, ``*dev.jsonl`` and ``*test.jsonl`` of a folder, by their splits.

    If there is no such file, ``*dev_matched.jsonl`` and ``*dev_mismatched.jsonl`` count, and then those that end in
    ``.txt``, ``.tsv``, ``.csv`` or ``.parquet``.

    Raises:
        RecipeError: a file is missing, or two have the same ending.
    """
    files = {}
    for split, endings in _FILES.items():
        names = [f"*{ending}{suffix}" for suffix in _SUFFIXES for ending in endings]
        with_ending = next((paths for name in names if (paths := sorted(Path(folder).glob(name)))), [])
        if len(with_ending) != 1:
            suffix = with_ending[0].suffix if with_ending else ".jsonl"
            raise RecipeError(
                f"{folder} has {len(with_ending)} files *{endings[0]}{suffix} and must have one; give the folder of "
                "SNLI's snli_1.0_train.jsonl, snli_1.0_dev.jsonl and snli_1.0_test.jsonl, that of MultiNLI, or files "
                "like them"
            )
        (files[split],) = with_ending
    return files


def read_pairs(path: str | os.PathLike[str], *, format: str | None = None) -> Forest:
    """Return the pairs of a file, two adjacent trees each: :meth:`~treemem.task.Task.read_examples` of the task."""
    return TASKS.find("entailment")().read_examples(path, format=format)
