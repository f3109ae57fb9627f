"""Read pairs of sentences from files in SNLI's format."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from treemem.errors import ParseError, RecipeError, VocabularyError, near_names, shown
from treemem.records import read_records
from treemem.trees.forest import Forest
from treemem.trees.formats.bracketed_lines import forest_of_bracketed
from treemem.trees.formats.record_reader import number_text, split_of, text_of
from treemem.trees.pairs import PAIR, PairReader
from treemem.trees.tree import Node, Tree, tree_nodes

CLASSES = ("entailment", "neutral", "contradiction")
SIDES = (
    ("sentence1_binary_parse", "sentence2_binary_parse"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
)
"""Names of the two sentences; the first pair of fields that a record has counts."""
_LABELS = ("gold_label", "label")
_UNDECIDED = ("-", "-1")
_HIDDEN = ("", "hidden")
"""Labels of test files that do not tell them."""
_NUMBERS = {
    **dict.fromkeys(_HIDDEN, -1),
    **{name: number for number, name in enumerate(CLASSES)},
    **{str(number): number for number in range(len(CLASSES))},
}
_WORD = re.compile(r"\w+|[^\w\s()]")
_BRACKET = re.compile(r"[()]")
_FILES = {"train": "train", "validation": "dev", "test": "test"}
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


def sides_of(fields: Mapping[str, Any]) -> list[str]:
    """Return premise and hypothesis of a record as trees in brackets.

    Raises:
        ParseError: one of them is missing or empty.
    """
    names = next((names for names in SIDES if fields.get(names[0]) is not None), SIDES[-1])
    return [bracketed(text_of(fields, [name])) for name in names]


def pair_tree(premise: str, hypothesis: str) -> Tree:
    """Return a pair as a tree whose root joins the two sentences."""
    return Tree(PAIR, list(forest_of_bracketed([bracketed(premise), bracketed(hypothesis)])))


def header_of(parts: Sequence[str]) -> Sequence[str] | None:
    """Return the names of the columns if a text line is a header: it names two sentences, and maybe more."""
    return parts if any(set(names) <= set(parts) for names in SIDES) else None


def read_pairs(path: str | os.PathLike[str], *, split: str | None = None, format: str | None = None) -> Forest:
    """Return the sentences of a file, two a pair, adjacent.

    ``tree_data`` has one entry a sentence, the same for both of a pair: ``label``, an index into ``CLASSES`` (-1 if the
    record has none, or ``hidden``), and ``split`` if there is one. Labels are the names of ``CLASSES`` or their
    indices. Pairs that the annotators did not agree on, whose label is ``-`` or -1, are left out.

    Args:
        path: a file with the fields ``gold_label`` (or ``label``) and those of ``SIDES``; a text file may have them in
            its header, or have lines ``PREMISE<TAB>HYPOTHESIS<TAB>LABEL``. Blank lines are skipped.
        split: of all pairs; by default the field ``split``.
        format: as :func:`~treemem.records.read_records` takes it.

    Raises:
        RecipeError: there is no such file, or no pair in it.
        ParseError: a record without a sentence, or with another label; with its line.
    """
    name = os.fspath(path)
    texts: list[str] = []
    lines, labels, splits = [], [], []
    one_of = tuple(itertools.chain.from_iterable(SIDES))
    for record in read_records(
        path,
        format=format,
        text_fields=PairRecords.text_fields,
        header_of=header_of,
        one_of=one_of,
        skip_blank_lines=True,
    ):
        try:
            given = next((text for each in _LABELS if (text := number_text(record.fields.get(each)))), "").lower()
            if given in _UNDECIDED:
                continue
            label = _NUMBERS.get(given)
            if label is None:
                near = near_names(given, CLASSES)
                raise ParseError(f"the label is {shown(given, 50)}{near}", expected=f"one of {', '.join(CLASSES)}")
            texts += sides_of(record.fields)
            splits.append(split or split_of(record.fields))
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, name) from error
        labels.append(label)
        lines += [record.line, record.line]
    if not texts:
        raise RecipeError(f"there are no pairs in {name}")
    forest = forest_of_bracketed(texts, source=name, lines=lines)
    data: dict[str, Any] = {"label": np.repeat(np.array(labels, np.int64), 2)}
    if any(splits):
        data["split"] = np.repeat(splits, 2)
    return forest.with_data(tree_data=data)


def read_folder(folder: str | os.PathLike[str]) -> Forest:
    """Return the pairs of the files ``*train.jsonl``, ``*dev.jsonl`` and ``*test.jsonl`` of a folder, with ``split``.

    If there is no such file, those that end in ``.txt``, ``.tsv``, ``.csv`` or ``.parquet`` count.

    Raises:
        RecipeError: a file is missing, or two have the same ending.
        ParseError: as :func:`read_pairs`.
    """
    parts = []
    for split, ending in _FILES.items():
        of_suffixes = (sorted(Path(folder).glob(f"*{ending}{suffix}")) for suffix in _SUFFIXES)
        found = next((files for files in of_suffixes if files), [])
        if len(found) != 1:
            files = f"{len(found)} files *{ending}{found[0].suffix if found else '.jsonl'}"
            raise RecipeError(
                f"{folder} has {files} and must have one; give the folder of SNLI's snli_1.0_train.jsonl, "
                "snli_1.0_dev.jsonl and snli_1.0_test.jsonl, or of files like them"
            )
        parts.append(read_pairs(found[0], split=split))
    data = {name: np.concatenate([part.tree_data[name] for part in parts]) for name in ("label", "split")}
    return Forest.concatenate(parts).with_data(tree_data=data)


@dataclass
class PairRecords(PairReader):
    """Reads pairs of sentences from records, with or without labels. A text line is ``PREMISE<TAB>HYPOTHESIS``."""

    unit: ClassVar[str] = "sentences"
    text_fields: ClassVar[tuple[str, ...]] = (*SIDES[-1], "label")
    example_fields: ClassVar[tuple[str, ...]] = tuple(itertools.chain.from_iterable(SIDES))

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        return header_of(parts)

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(pair_tree(*sides_of(fields)))
