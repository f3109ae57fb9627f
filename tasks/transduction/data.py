"""The pairs of a data set: drawn, or read from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treemem.checked_options import checked_count
from treemem.data.examples import TaskData
from treemem.errors import ParseError, RecipeError, VocabularyError, near_names
from treemem.nn.sequence_to_sequence import BETWEEN, END
from treemem.tasks.transduction.grammars import DRAWS, Kind, Pair
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.postorder_nodes import Node, tree_nodes
from treemem.trees.record_reader import RecordReader
from treemem.trees.source_text import decode_source
from treemem.trees.tree import Tree

PAIR = "Pair"


@dataclass(frozen=True)
class TransductionDataOptions:
    """How many pairs, and how long.

    Args:
        training_size, validation_size, test_size: numbers of pairs. No pair is in two of the parts.
        train_lengths: the shortest and the longest source of the pairs for training and validation.
        test_lengths: of those for the test. Lengths are drawn evenly.
        seed: of all choices.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: int = 20_000
    validation_size: int = 500
    test_size: int = 1000
    train_lengths: tuple[int, int] = (8, 64)
    test_lengths: tuple[int, int] = (65, 128)
    seed: int = 12093

    def __post_init__(self) -> None:
        for name in ("training_size", "validation_size", "test_size"):
            checked_count(name, getattr(self, name))
        for name in ("train_lengths", "test_lengths"):
            value = tuple(getattr(self, name))
            if len(value) != 2 or not 3 <= value[0] <= value[1]:
                raise RecipeError(f"{name} are the shortest and the longest source, from 3 up, not {list(value)}")
            object.__setattr__(self, name, value)


def make_pairs(kind: Kind, alphabet: int, options: TransductionDataOptions) -> TaskData:
    """Return pairs of a kind with their splits; no source stands twice."""
    generator = np.random.default_rng(options.seed)
    parts = (
        ("train", options.training_size, options.train_lengths),
        ("validation", options.validation_size, options.train_lengths),
        ("test", options.test_size, options.test_lengths),
    )
    pairs: list[Pair] = []
    splits: list[str] = []
    seen: set[tuple[str, ...]] = set()
    for split, count, (shortest, longest) in parts:
        found = 0
        for _ in range(100 * count):
            pair = DRAWS[kind](int(generator.integers(shortest, longest + 1)), alphabet, generator)
            if tuple(pair[0]) not in seen:
                seen.add(tuple(pair[0]))
                pairs.append(pair)
                found += 1
                if found == count:
                    break
        if found < count:
            raise RecipeError(f"there are only {found} different sources for the {count} of {split}; ask for fewer")
        splits += [split] * count
    card = f"{len(pairs)} pairs of {kind} over {alphabet} symbols, {options}\n"
    return TaskData(forest_of_pairs(pairs).with_data(tree_data={"split": np.array(splits)}), card)


def forest_of_pairs(pairs: Sequence[Pair]) -> Forest:
    """Return a tree ``Pair(Sequence(source), Sequence(target, </s>))`` for each pair."""
    table = {PAIR: 0, SEQUENCE: 1, END: 2}
    label: list[int] = []
    arity: list[int] = []
    begin = [0]
    for source, target in pairs:
        for words in (source, [*target, END]):
            label += [table.setdefault(word, len(table)) for word in words]
            label.append(table[SEQUENCE])
            arity += [0] * len(words)
            arity.append(len(words))
        label.append(table[PAIR])
        arity.append(2)
        begin.append(len(label))
    return Forest(tuple(table), np.array(label, np.int32), np.array(arity, np.int32), np.array(begin, np.int64))


def words_of(text: str, known: Iterable[str], what: str = "source") -> list[str]:
    """Return the symbols of a text.

    Raises:
        ParseError: there is none.
        VocabularyError: one that the task does not have.
    """
    words, symbols = decode_source(text).split(), set(known) - {END, BETWEEN}
    if not words:
        raise ParseError(f"an empty {what}; give symbols with spaces between them", text)
    for word in words:
        if word not in symbols:
            raise VocabularyError(f"unknown symbol {word!r}{near_names(word, sorted(symbols))}")
    return words


@dataclass
class SourceRecords(RecordReader):
    """Reads sources.

    Args:
        symbols: that the task has.
    """

    symbols: tuple[str, ...]
    text_fields: ClassVar[tuple[str, ...]] = ("source", "target")
    example_fields: ClassVar[tuple[str, ...]] = ("source",)

    def is_header(self, parts: Sequence[str]) -> bool:
        return tuple(parts) == self.text_fields

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(source_tree(str(fields.get("source") or ""), self.symbols))


def source_tree(text: str, symbols: Iterable[str]) -> Tree:
    """Return the source that a text describes as a flat tree."""
    return Tree(SEQUENCE, [Tree(word) for word in words_of(text, symbols)])
