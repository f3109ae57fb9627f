"""Read sources, and pairs of source and target, from texts and files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, near_names, shown
from treemem.networks.sequences.sequence_to_sequence.layer import END
from treemem.records import read_records
from treemem.tasks.transduction.grammars import Pair
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.formats.record_reader import RecordReader, header_with, number_text, split_of, text_of
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Node, Tree, tree_nodes

PAIR = "Pair"
FIELDS = ("source", "target")


def words_of(text: str | bytes, symbols: Collection[str], side: str = "source") -> list[str]:
    """Return the symbols of a text.

    Args:
        text: symbols separated by spaces.
        symbols: those that may stand there.
        side: what the text is, for errors.

    Raises:
        ParseError: there is no symbol, or a tab.
        VocabularyError: a symbol that is not one of ``symbols``.
    """
    text = decode_source(text)
    expected = "symbols separated by spaces"
    if "\t" in text:
        raise ParseError(f"there is a tab in the {side}", text, text.index("\t"), expected)
    words = []
    for found in re.finditer(r"\S+", text):
        word = found.group()
        if word not in symbols:
            problem = f"unknown symbol {word!r:.100} in the {side}{near_names(word, symbols)}"
            raise VocabularyError(problem, text, found.start())
        words.append(word)
    if not words:
        raise ParseError(f"the {side} is empty", text, 0, expected)
    return words


def source_tree(text: str | bytes, symbols: Collection[str]) -> Tree:
    """Return a source as a flat tree. Raises as :func:`words_of`."""
    return Tree(SEQUENCE, [Tree(word) for word in words_of(text, symbols)])


def forest_of_pairs(pairs: Sequence[Pair], end: Sequence[str] = (END,)) -> Forest:
    """Return a tree ``Pair(Sequence(source...), Sequence(target..., end...))`` for each pair."""
    table = {label: number for number, label in enumerate((PAIR, SEQUENCE, *end))}
    label: list[int] = []
    arity: list[int] = []
    begin = [0]
    for source, target in pairs:
        for words in (source, [*target, *end]):
            label += [table.setdefault(word, len(table)) for word in words]
            label.append(table[SEQUENCE])
            arity += [0] * len(words)
            arity.append(len(words))
        label.append(table[PAIR])
        arity.append(2)
        begin.append(len(label))
    return Forest(tuple(table), np.array(label, np.int32), np.array(arity, np.int32), np.array(begin, np.int64))


def read_pairs(
    path: str | os.PathLike[str],
    words: Callable[[str, str], list[str]],
    *,
    numbers: Mapping[str, int] | None = None,
    format: str | None = None,
) -> Forest:
    """Return the pairs of a file; ``tree_data["split"]`` holds the field ``split``, if there is one.

    If the first record has no target, the result is the sources alone, as flat trees. Targets are not compared with
    what the task would write.

    Args:
        path: a file with the fields ``source`` and ``target``, or of lines ``SOURCE<TAB>TARGET``.
        words: returns the symbols of a text; its second argument is ``"source"`` or ``"target"``.
        numbers: fields with a whole number of each pair, for ``tree_data``, and the largest that it may be; 0 if a
            record does not have it.
        format: as :func:`~treemem.records.read_records` takes it.

    Raises:
        RecipeError: there is no such file, or no pair in it.
        ParseError: a record without a source or a target, or with an unknown split or a wrong number; with its line.
        VocabularyError: an unknown symbol; with its line.
    """
    examples: list[list[list[str]]] = []
    sides: tuple[str, ...] = FIELDS
    splits, name = [], os.fspath(path)
    values: dict[str, list[int]] = {each: [] for each in numbers or {}}
    known = header_with((*FIELDS, *values), FIELDS[:1])
    for record in read_records(
        path, format=format, text_fields=FIELDS, header_of=known, one_of=FIELDS, skip_blank_lines=True
    ):
        if not examples and record.fields.get("target") is None:
            sides = FIELDS[:1]
        try:
            examples.append([words(text_of(record.fields, [side]), side) for side in sides])
            splits.append(split_of(record.fields))
            for each, column in values.items():
                column.append(_whole_number(each, record.fields.get(each), (numbers or {})[each]))
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, name) from error
    if not examples:
        raise RecipeError(f"there are no pairs in {name}")
    if sides == FIELDS:
        forest = forest_of_pairs([(source, target) for source, target in examples])
    else:
        forest = Forest.from_sequences([source for (source,) in examples])
    split = {"split": np.array(splits)} if any(splits) else {}
    return forest.with_data(tree_data={**split, **{each: np.array(column) for each, column in values.items()}})


def _whole_number(name: str, value: object, largest: int) -> int:
    text = number_text(value) or "0"
    if not text.isdecimal() or int(text) > largest:
        raise ParseError(f"{name} is {text!r}", text, 0, f"a whole number from 0 to {largest}")
    return int(text)


@dataclass
class SourceRecords(RecordReader):
    """Reads the sources of records, with or without a target.

    Args:
        parse: a source to its tree.
    """

    text_fields: ClassVar[tuple[str, ...]] = FIELDS
    example_fields: ClassVar[tuple[str, ...]] = FIELDS[:1]

    parse: Callable[[str], Tree]

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(self.parse(text_of(fields, self.example_fields)))

    def checked_tree(self, tree: Tree) -> Tree:
        if tree.label != SEQUENCE or not tree.children or any(child.children for child in tree.children):
            raise GraphError(
                f"a source is a tree of the root {SEQUENCE!r} whose children are symbols, not {shown(tree)}"
            )
        return tree
