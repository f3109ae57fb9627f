"""Pairs of texts in files: how they are read, and how they are divided."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Natural, NonNegative, check_fields
from treemem.errors import ParseError, RecipeError
from treemem.records import Record
from treemem.task.sequences import FIELDS, SourceRecords, Words, words_of
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import SPLITS, text_of

SOURCE_MARK, TARGET_MARK = "IN:", "OUT:"
"""The words before the source and the target in a line such as ``IN: jump twice OUT: I_JUMP I_JUMP``."""

_ONE_LINE = f"{SOURCE_MARK} source {TARGET_MARK} target"


@dataclass(frozen=True)
class TextDataOptions:
    """How the pairs of ``path`` are divided, if no column ``split`` and no further files do that.

    All pairs of one source go to the same split.

    Attributes:
        validation: share of the sources to validate with, unless ``validation_path`` has these pairs.
        test: share of the sources to test with, unless ``test_path`` has these pairs.
        seed: of the division.

    Raises:
        RecipeError: the shares are negative or leave nothing to train on.
    """

    validation: NonNegative = 0.1
    test: NonNegative = 0.1
    seed: Natural = 0

    def __post_init__(self) -> None:
        check_fields(self, "data.")
        if self.validation + self.test >= 1:
            raise RecipeError("data.validation and data.test are shares of the sources: together below 1")


class Pair(NamedTuple):
    """A source and its target.

    Attributes:
        source, target: their words.
        split: of the file that it is in, or of its column; empty if it has none.
        line: where it begins in its file.
    """

    source: Words
    target: Words
    split: str
    line: int


class PairRecords(SourceRecords):
    """Reads sources of records, and lines such as ``IN: source OUT: target``."""

    def fields_of(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return source_and_target(fields)


def source_and_target(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a record; a source such as ``IN: source OUT: target`` is split into both.

    Raises:
        ParseError: a source that begins with the mark beside a target, or a second mark.
    """
    text = fields.get("source")
    if not isinstance(text, str) or text.split(maxsplit=1)[:1] != [SOURCE_MARK]:
        return fields
    if "target" in fields:
        problem = f"the source begins with {SOURCE_MARK}, and there is a column of targets"
        raise ParseError(problem, text, 0, f"one of the two: columns, or lines {_ONE_LINE}")
    words = text.split()
    if words.count(TARGET_MARK) > 1 or words.count(SOURCE_MARK) > 1:
        raise ParseError("a mark stands twice in the line", text, 0, _ONE_LINE)
    end = words.index(TARGET_MARK) if TARGET_MARK in words else None
    target = {} if end is None else {"target": " ".join(words[end + 1 :])}
    return {**fields, "source": " ".join(words[1:end]), **target}


def read_pairs(path: str | os.PathLike[str], reader: PairRecords, split: str = "") -> list[Pair]:
    """Return the pairs of a file.

    Args:
        path: a file in CSV, JSONL, Parquet or text.
        reader: of the task.
        split: of all pairs, which must not have a column ``split`` that says another; empty: that of the column.

    Raises:
        RecipeError: there is no such file, no pair in it, or its column ``split`` contradicts ``split``.
        ParseError, VocabularyError: a record that is no pair; with file and line.
    """

    def read(record: Record) -> tuple[list[Words], int]:
        fields = reader.fields_of(record.fields)
        if "source" in fields and fields.get("target") is None:
            raise ParseError("the pair has no target", str(fields["source"]), 0, f"source<TAB>target, or {_ONE_LINE}")
        return [words_of(text_of(fields, [side]), None, side) for side in FIELDS], record.line

    examples, known = read_labelled(path, reader, read, "pairs")
    splits = [str(name) for name in known.get("split", [split] * len(examples))]
    if split and (others := {*splits} - {split}):
        shown = ", ".join(sorted(name or "(none)" for name in others))
        raise RecipeError(
            f"{os.fspath(path)} is the file of the {split} pairs, and its column split has {shown}; give the pairs of "
            "each split a file of their own, or one file with the column"
        )
    if not all(splits) and any(splits):
        line = examples[splits.index("")][1]
        raise RecipeError(
            f"{os.fspath(path)}, line {line}: the pair has no split, and others do; give each one, or none"
        )
    return [Pair(source, target, name, line) for ((source, target), line), name in zip(examples, splits, strict=True)]


def divided(pairs: Sequence[Pair], options: TextDataOptions, drawn: Sequence[str]) -> NDArray[Any]:
    """Return the split of each pair; sources are drawn for those that have none.

    Args:
        pairs: with their splits, as far as they have one.
        options: shares and seed.
        drawn: which of ``"validation"`` and ``"test"`` to draw.

    Raises:
        RecipeError: a split would be empty.
    """
    split = np.array([pair.split for pair in pairs], "<U10")
    free = [place for place, pair in enumerate(pairs) if not pair.split]
    sources = list(dict.fromkeys(tuple(pairs[place].source) for place in free))
    order = np.random.default_rng(options.seed).permutation(len(sources))
    of_source = dict.fromkeys(sources, SPLITS[0])
    first = 0
    for name in drawn:
        share = getattr(options, name)
        count = round(share * len(sources))
        if share and (not count or first + count >= len(sources)):
            raise RecipeError(
                f"data.{name}={share:g} of {len(sources)} different sources leaves no pair for "
                f"{SPLITS[0] if count else name}; change it, or give more pairs"
            )
        of_source |= {sources[place]: name for place in order[first : first + count]}
        first += count
    for place in free:
        split[place] = of_source[tuple(pairs[place].source)]
    return split
