"""Tasks of token sequences: the next token, or a target sequence for a source sequence."""

from __future__ import annotations

import itertools
import os
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.checked_options import Count, Natural, check_fields, count_range
from treemem.data.examples import PADDING, Examples, SequenceExamples, TaskData, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, near_names, shown
from treemem.model_output import Answer, ModelOutput
from treemem.networks.sequences.sequence_to_sequence.layer import BETWEEN, END
from treemem.records import Record, records_of_columns
from treemem.task.interface import Groups, Task, TreeData
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.formats.labelled_files import read_labelled
from treemem.trees.formats.record_reader import RecordReader, header_with, number_text, text_of
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Node, Tree, tree_nodes

PAIR = "Pair"
FIELDS = ("source", "target")
_MARKS = frozenset({END, BETWEEN})
Words = list[str]


class TokenTask(Task):
    """A task whose network gives the logits of a token at each place, ``[sequences, longest, tokens]``.

    The target ``"tokens"`` has the correct ids, ``PADDING`` where no token is asked for.
    """

    token_form: ClassVar[TokenForm] = "leaves"

    def head(self, hidden_size: int) -> nn.Module:
        """Return a head that leaves the logits of the network as they are."""
        return NetworkLogits()

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        """Return the cross-entropy, and the number of tokens."""
        tokens = targets["tokens"]
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())


class NetworkLogits(nn.Module):
    """The logits that the network gives."""

    def forward(self, encoded: Any) -> Tensor:
        outputs: Tensor = encoded.outputs
        return outputs


@dataclass(frozen=True)
class SourceDataOptions:
    """How many examples, and how long their sources are.

    Attributes:
        training_size, validation_size, test_size: numbers of examples.
        train_lengths: the shortest and the longest source of training and validation.
        test_lengths: of the test.
        seed: of all choices.
        path: use the examples of this file instead. Its field ``split`` (train, validation, test) divides them.
        least_length: of a source.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 20_000
    validation_size: Count = 500
    test_size: Count = 1000
    train_lengths: tuple[int, int] = (8, 64)
    test_lengths: tuple[int, int] = (65, 128)
    seed: Natural = 12093
    path: str | None = None
    least_length: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fields(self, "data.")
        for name in ("train_lengths", "test_lengths"):
            given = getattr(self, name)
            value = count_range(given)
            if value is None or value[0] < self.least_length:
                raise RecipeError(
                    f"data.{name} are the shortest and the longest input, from {self.least_length} up, not {given!r}"
                )
            object.__setattr__(self, name, value)

    @property
    def parts(self) -> dict[str, tuple[int, tuple[int, int]]]:
        """The number of examples and the lengths of each split."""
        return {
            "train": (self.training_size, self.train_lengths),
            "validation": (self.validation_size, self.train_lengths),
            "test": (self.test_size, self.test_lengths),
        }


class SourceTargetTask(TokenTask):
    """A task whose networks read a source and give a target.

    Data are forests of trees ``Pair(Sequence(source...), Sequence(target...))``, or of flat trees, which are sources
    alone; ``tree_data["split"]`` if they are divided. Files have the fields ``source`` and ``target``. Their targets
    are not compared with what the task would write.

    A subclass has at least a vocabulary, :meth:`words`, :meth:`drawn` and :meth:`scores`.

    Attributes:
        separator: what stands between two symbols of a text.
        end: what ends a target.
        marks: tokens that texts do not have.
        number_fields: fields of files with a whole number of each example, for ``tree_data``, and the largest that it
            may be; 0 if a record does not have it.
    """

    text_columns: ClassVar[tuple[str, ...]] = FIELDS
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "symbols separated by spaces",
        "target": "likewise; treemem predict does not need it",
    }
    separator: ClassVar[str] = " "
    end: ClassVar[tuple[str, ...]] = (END,)
    marks: ClassVar[tuple[str, ...]] = (END,)
    number_fields: ClassVar[Mapping[str, int]] = {}

    @abstractmethod
    def words(self, text: str, side: str) -> Words:
        """Return the symbols of a text.

        Args:
            text: of a user.
            side: what it is, ``"source"`` or ``"target"``.

        Raises:
            ParseError: there is no symbol.
            VocabularyError: a symbol that this side does not have.
        """

    def sequences(self, source: Words, target: Words | None = None) -> list[Words]:
        """Return what a network reads and, with a target, what it is to give before the end."""
        return [source] if target is None else [source, target]

    def lengths(self, sources: Forest) -> NDArray[np.int64]:
        """Return the length of each source."""
        return np.diff(sources.begin) - 1

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the lengths of the sources.

        Args:
            forest: of the sources.
            tree_data: what is known of each example.
        """
        length = self.lengths(forest)
        return Groups(self.binned(length), length)

    @abstractmethod
    def drawn(self, options: Any) -> TaskData:
        """Generate the data that ``options`` ask for."""

    def make_data(self, options: Any, *, progress: bool | None = None) -> TaskData:
        """Return drawn examples, or those of the file ``options.path``, if the options have one.

        Raises:
            RecipeError: there are too few examples such as ``options`` ask for, or none in the file.
            ParseError, VocabularyError: a record of the file is not an example.
        """
        path = getattr(options, "path", None)
        if path is None:
            return self.drawn(options)
        forest, title = self.read_examples(path), self.name.replace("_", " ").capitalize()
        return TaskData(forest, f"# {title}\n\n{len(forest)} {self.unit} of {path}.\n")

    def parse(self, text: str) -> Tree:
        """Return the source that a text describes, as a flat tree. Raises as :meth:`words`."""
        (source,) = self.sequences(self.words(decode_source(text), "source"))
        return Tree(SEQUENCE, [Tree(word) for word in source])

    @property
    def reader(self) -> SourceRecords:
        return SourceRecords(self.parse, (*self.number_fields,))

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the examples of a file. If its first record has no target, these are the sources alone.

        Raises:
            RecipeError: there is no such file, or no example in it.
            ParseError: a record without a source or a target, or with an unknown split or a wrong number; with its
                line.
            VocabularyError: an unknown symbol; with its line.
        """
        sides: tuple[str, ...] = ()

        def read(record: Record) -> tuple[list[Words], list[int]]:
            nonlocal sides
            fields = self.reader.fields_of(record.fields)
            sides = sides or (FIELDS if fields.get("target") is not None else FIELDS[:1])
            words = [self.words(text_of(fields, [side]), side) for side in sides]
            numbers = [_whole_number(name, fields.get(name), most) for name, most in self.number_fields.items()]
            return self.sequences(*words), numbers

        examples, known = read_labelled(source, self.reader, read, self.unit, format=format)
        sequences, numbers = zip(*examples, strict=True)
        if sides == FIELDS:
            forest = forest_of_pairs(sequences, self.end)
        else:
            forest = Forest.from_sequences([words for (words,) in sequences])
        return forest.with_data(tree_data={**known, **dict(zip(self.number_fields, np.array(numbers).T, strict=True))})

    def text_columns_of(self, data: Forest) -> dict[str, Iterable[str]]:
        """Return the columns ``source`` and ``target`` of a file."""
        texts = [
            self.separator.join(word for word in words if word not in self.marks)
            for words in data.split_roots().tokens("leaves").strings()
        ]
        return dict(zip(FIELDS, (texts[::2], texts[1::2]), strict=True))

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        return records_of_columns({**self.text_columns_of(data), **self.split_and_group(self.examples(data))})

    def examples(self, data: Forest) -> Examples:
        """Return the examples of a forest, without labels if they are sources alone.

        Raises:
            GraphError: trees that are neither.
        """
        if data.is_flat:
            return SequenceExamples(data, 1, {}, self.groups(data, data.tree_data).group, np.zeros(len(data), bool))
        root = data.begin[1:] - 1
        if any(data.labels[place] != PAIR for place in np.unique(data.label[root])) or (data.arity[root] != 2).any():
            example = self.unit.removesuffix("s")
            raise GraphError(
                f"{'an' if example[0] in 'aeiou' else 'a'} {example} is a tree of the root {PAIR!r} with two children; "
                f"{type(self).__name__}.read_examples makes them"
            )
        sides = data.split_roots()
        group, difficulty = self.groups(sides[::2], data.tree_data)
        split = split_numbers(data.tree_data.get("split"))
        return SequenceExamples(sides, 2, {}, group, np.ones(len(data), bool), split, difficulty=difficulty)


class Written(NamedTuple):
    """What a network wrote for a source.

    Attributes:
        symbols: as it read its own output, without ``</s>``.
        gold: the target, without ``</s>``; None for a symbol that the network does not know and so cannot write.
        right: how many symbols of the target, ``</s>`` included, were the most probable ones after the target's symbols
            before them; 0 if the network was traced, which gives no logits.
    """

    symbols: list[str]
    gold: Sequence[str | None]
    right: int

    @property
    def num_correct(self) -> int:
        """How many symbols of the target, ``</s>`` included, were written at their places."""
        pairs = zip([*self.symbols, END], [*self.gold, END], strict=False)
        return sum(one == other for one, other in pairs)


class WritingTask(SourceTargetTask):
    """A task whose networks write the target symbol by symbol, up to ``</s>``.

    A network gets a :class:`~treemem.data.token_batch.TokenBatch` of sources; its ``target`` holds the targets, which
    end in ``</s>``. The encoder output has the logits ``outputs [batch, longest target, leaves]``, of each symbol given
    those before it, the ``vocabulary`` and, in evaluation, ``decoded``: for each example the ids that it wrote, without
    ``</s>``.
    """

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Written]:
        encoded = output.encoded
        names, unknown = encoded.vocabulary.leaves, encoded.vocabulary.unknown
        decoded = [[names[symbol] for symbol in symbols] for symbols in encoded.decoded]
        if not targets:
            return [Written(symbols, [], 0) for symbols in decoded]
        tokens = targets["tokens"]
        is_traced = encoded.tokens is not None  # then the outputs are no logits
        right = [0] * len(tokens) if is_traced else (output.outputs.argmax(-1) == tokens).sum(1).tolist()
        known = [None if name == unknown else name for name in names]
        gold = [[known[token] for token in row if token != PADDING][:-1] for row in tokens.tolist()]
        return [Written(*fields) for fields in zip(decoded, gold, right, strict=True)]

    def correct(self, kept: list[Written], targets: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.array([written.symbols == written.gold for written in kept], bool)

    def answers(self, kept: list[Written], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the symbols that were written, with the separator between them."""
        return [Answer(self.separator.join(written.symbols), None) for written in kept]


@dataclass
class SourceRecords(RecordReader):
    """Reads the sources of records, with or without a target.

    Args:
        parse: a source to its tree.
        further_fields: that the header of a text file may name.
    """

    text_fields: ClassVar[tuple[str, ...]] = FIELDS
    example_fields: ClassVar[tuple[str, ...]] = FIELDS[:1]

    parse: Callable[[str], Tree]
    further_fields: tuple[str, ...] = ()

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        return header_with((*FIELDS, *self.further_fields), self.example_fields)(parts)

    def fields_of(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a record as ``source`` and ``target``, if files may have other forms."""
        return fields

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(self.parse(text_of(fields, self.example_fields)))

    def checked_tree(self, tree: Tree) -> Tree:
        if tree.label != SEQUENCE or not tree.children or any(child.children for child in tree.children):
            raise GraphError(
                f"a source is a tree of the root {SEQUENCE!r} whose children are symbols, not {shown(tree)}"
            )
        return tree


def words_of(text: str, symbols: Collection[str] | None, side: str = "source") -> Words:
    """Return the symbols of a text, which are separated by spaces.

    Args:
        text: of symbols.
        symbols: those that may stand there; None: any but the marks of the network.
        side: what the text is, for errors.

    Raises:
        ParseError: there is no symbol, or a tab.
        VocabularyError: a symbol that is not one of ``symbols``, or a mark.
    """
    expected = "symbols separated by spaces"
    if "\t" in text:
        raise ParseError(f"there is a tab in the {side}", text, text.index("\t"), expected)
    words = text.split()
    if not words:
        raise ParseError(f"the {side} is empty", text, 0, expected)
    wrong = _MARKS.intersection(words) if symbols is None else set(words).difference(symbols)
    if wrong:
        first = next(match for match in re.finditer(r"\S+", text) if match[0] in wrong)
        problem = f"unknown symbol {first[0]!r:.100} in the {side}{near_names(first[0], symbols or ())}"
        if symbols is None:
            problem = f"the {side} has the symbol {first[0]!r}, which marks an end for networks; write another one"
        raise VocabularyError(problem, text, first.start())
    return words


def forest_of_pairs(pairs: Iterable[Sequence[Words]], end: Sequence[str] = (END,)) -> Forest:
    """Return a tree ``Pair(Sequence(source...), Sequence(target..., end...))`` for each pair."""
    table: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    pair_label, sequence_label, *_ = (table[label] for label in (PAIR, SEQUENCE, *end))
    label: list[int] = []
    arity: list[int] = []
    begin = [0]
    for source, target in pairs:
        for words in (source, [*target, *end]):
            label += [table[word] for word in words]
            label.append(sequence_label)
            arity += [0] * len(words)
            arity.append(len(words))
        label.append(pair_label)
        arity.append(2)
        begin.append(len(label))
    return Forest(tuple(table), np.array(label, np.int32), np.array(arity, np.int32), np.array(begin, np.int64))


def _whole_number(name: str, value: object, largest: int) -> int:
    text = number_text(value) or "0"
    if not text.isdecimal() or int(text) > largest:
        raise ParseError(f"{name} is {text!r}", text, 0, f"a whole number from 0 to {largest}")
    return int(text)
