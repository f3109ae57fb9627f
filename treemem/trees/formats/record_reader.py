"""How the examples of a task are read out of records: text lines, fields of a file, trees."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError, near_names, quoted, shown
from treemem.trees.forest import Forest
from treemem.trees.formats.as_tree import as_tree, has_label, is_sympy
from treemem.trees.formats.forms import TextForm
from treemem.trees.formats.text_forms import parse_text
from treemem.trees.tree import Node, Tree, tree_nodes

Example = Any
"""A text line, the fields of a record, a tree, or what :func:`~treemem.trees.as_tree` makes a tree of."""

SPLITS = ("train", "validation", "test")
"""What the examples of a task may be divided into."""

YES_OR_NO = {"1": 1, "0": 0, "true": 1, "false": 0, "-1": -1, "": -1}
"""The labels that files have if the answer is yes or no, for :func:`class_number`."""

_CHARACTERS_PER_NODE = 16


class RecordReader(ABC):
    """Reads examples, each on its own; what one record says changes nothing about another.

    It holds no weights, so that another process can be given it and read.

    Attributes:
        text_fields: what the tab-separated parts of a text line are, as far as there are any.
        example_fields: the fields of a record that an example may be read from, the label not among them; a table
            without any of them is refused as a whole, and where records are predicted nothing but these is kept of
            them. None where an example may be read from any.
        most_nodes: the most nodes that one record may have, since a record costs memory and time with every node and
            every level; None: any number.
        number: the label of leaves that keep numbers as values; None: numbers are labels.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("text",)
    example_fields: ClassVar[tuple[str, ...]] = ()
    most_nodes: int | None = None
    number: str | None = None

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        """Return the names of the columns of a text file, given its first line that is not blank.

        By default that line is a header if it has several parts, all of them names of fields.

        Args:
            parts: the parts between the tabs, without spaces around them.

        Returns:
            The names of the columns; None if the line is a record.
        """
        return header_with(self.text_fields, self.example_fields)(parts)

    def fields_of_line(self, parts: Sequence[str]) -> Mapping[str, Any]:
        """The fields that the parts of a text line are.

        Raises:
            ParseError: parts that are no example.
        """
        return dict(zip(self.text_fields, parts, strict=False))

    @abstractmethod
    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        """The nodes of the example that the fields of a record describe, as one tree in post-order.

        Fields that say something else, such as a label, are not read.

        Raises:
            ParseError: none of the fields that an example is read from, or one that holds no example.
            VocabularyError, GraphError: an example that cannot be.
        """

    def is_record(self, fields: Mapping[str, Any]) -> bool:
        """Whether a dictionary is a record with fields of an example, not a node (:func:`~treemem.trees.as_tree`)."""
        plain_fields = [name for name in self.example_fields if not has_label({name: None})]
        return any(name in fields for name in plain_fields) or bool(self.example_fields and not has_label(fields))

    def checked_tree(self, tree: Tree) -> Tree:
        """The tree of an example, as it is.

        Raises:
            GraphError: it is none.
        """
        return tree

    def tree_of(self, example: object) -> Tree:
        """Return the tree that an example in another form describes (:func:`~treemem.trees.as_tree`).

        Raises:
            GraphError: it describes none.
        """
        return as_tree(example)

    def tree_in(self, text: str, form: TextForm) -> Tree:
        """Return the tree that a text in a form of its own describes (:func:`~treemem.trees.parse_text`).

        Raises:
            TreememError: it describes none, or is too long.
        """
        self._check_size("characters", len(text), _CHARACTERS_PER_NODE)
        return parse_text(text, form, number=self.number)

    def joined(self, trees: Sequence[Tree]) -> Tree:
        """One tree of the trees of an example: the two sides of an equation, say.

        Raises:
            GraphError: another number of trees than an example has.
        """
        if len(trees) != 1:
            raise GraphError(f"an example is one tree, not {len(trees)}")
        return trees[0]

    def read(self, example: Example) -> list[Node]:
        """The nodes of an example, however it is given.

        Raises:
            GraphError: more than ``most_nodes`` nodes, or a text of more than 16 characters for each of them, which is
                refused before it is parsed.
            TreememError: as :meth:`nodes`.
        """
        if not isinstance(example, (str, Mapping, Tree)):
            example = self.tree_of(example)
        if isinstance(example, Tree):
            self._check_size("nodes", example.size)
        else:
            texts: Iterable[object] = [example]
            if isinstance(example, Mapping):
                texts = [example.get(name) for name in self.example_fields or example]
            characters = sum(len(text) for text in texts if isinstance(text, str))
            self._check_size("characters", characters, _CHARACTERS_PER_NODE)
        nodes = self._nodes(example)
        self._check_size("nodes", len(nodes))
        return nodes

    def _check_size(self, what: str, size: int, factor: int = 1) -> None:
        if self.most_nodes is not None and size > factor * self.most_nodes:
            raise GraphError(
                f"this record has {size:,} {what}; a record may have {factor * self.most_nodes:,} (most_nodes="
                f"{self.most_nodes:,}). Raise most_nodes to read it (--most-nodes of treemem predict)"
            )

    def _nodes(self, example: Example) -> list[Node]:
        if isinstance(example, Tree):
            return tree_nodes(self.checked_tree(example))
        if isinstance(example, str):
            parts = example.split("\t")
            if len(parts) > len(self.text_fields):
                offset = sum(len(part) + 1 for part in parts[: len(self.text_fields)]) - 1
                raise ParseError(f"{len(parts)} parts between tabs", example, offset, "<TAB>".join(self.text_fields))
            return self.nodes(self.fields_of_line(parts))
        return self.nodes(example)


def header_with(names: Sequence[str], examples: Sequence[str]) -> Callable[[Sequence[str]], Sequence[str] | None]:
    """Return the test for headers of text files, for :func:`~treemem.records.read_records`.

    Args:
        names: names of columns; a header has several parts, which are all among these, or ``id``, ``label`` or
            ``split``.
        examples: names of which a header has at least one.
    """
    known = {"id", "label", "split", *names, *examples}

    def header_of(parts: Sequence[str]) -> Sequence[str] | None:
        is_header = len(parts) > 1 and known.issuperset(parts) and not set(examples).isdisjoint(parts)
        return parts if is_header else None

    return header_of


class ParsedText(RecordReader):
    """Reads a task's texts by its parser, out of text lines and of the field ``text`` or ``tree`` of records.

    Args:
        parse: text to tree.
    """

    example_fields: ClassVar[tuple[str, ...]] = ("text", "tree")

    def __init__(self, parse: Callable[[str], Tree]) -> None:
        self.parse = parse

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(self.parse(text_of(fields, self.example_fields)))


def text_of(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the text in the first of these fields that a record has.

    Raises:
        ParseError: it has none of them, or the field is no text.
    """
    for name in names:
        text = fields.get(name)
        if text is not None:
            if not isinstance(text, str):
                raise ParseError(f"the field {name!r} is {shown(text)}", expected="a text")
            return text
    there = quoted(fields, most=20) or "(none)"
    raise ParseError(f"no example among the fields {there:.200}", expected=" or ".join(names))


def number_text(cell: object) -> str:
    """Return a cell as text without spaces around it; 3.0 as 3, since a column of whole numbers with gaps has floats.

    A missing cell is an empty text.
    """
    return "" if is_missing(cell) else re.sub(r"(?<=[0-9])\.0+\Z", "", str(cell).strip())


def class_number(fields: Mapping[str, Any], names: Sequence[str], numbers: Mapping[str, int]) -> int:
    """Return the number of the class that a record names, in any case of its letters if no class has exactly this name.

    Args:
        fields: of the record.
        names: the fields that may have it.
        numbers: of the classes, by their names; of the empty text too, if a record may have none.

    Raises:
        ParseError: there is no such class, or two fields name different ones.
    """
    given = [name for name in names if number_text(fields.get(name))] or [names[0]]
    if len(given) > 1 and len({class_number(fields, [name], numbers) for name in given}) > 1:
        texts = " and ".join(f"{name} {shown(fields[name], 50)}" for name in given)
        raise ParseError(f"two fields name different classes: {texts}", expected="one class")
    name, *_ = given
    text = number_text(fields.get(name))
    number = numbers.get(text, numbers.get(text.lower()))
    if number is None:
        problem = f"the {name} is {shown(fields.get(name), 50)}{near_names(text, numbers)}"
        known = {name: number for name, number in numbers.items() if name and number >= 0}
        raise ParseError(problem, expected=f"one of the {len({*known.values()})} classes {', '.join(known):.200}")
    return number


def is_missing(cell: object) -> bool:
    """Return whether a cell of a table holds nothing: None, NaN, or what pandas has for them."""
    is_nan = isinstance(cell, (float, np.floating)) and cell != cell
    return cell is None or is_nan or type(cell).__name__ in ("NAType", "NaTType")


def is_single_example(data: object) -> bool:
    """Whether this is one example where several are asked for."""
    is_one = isinstance(data, (str, bytes, Tree, Mapping)) or is_sympy(data) or hasattr(data, "in_degrees")
    return is_one or not isinstance(data, Iterable)


def split_of(fields: Mapping[str, Any]) -> str:
    """What the field ``split`` of a record says; nothing where it is not there, null or NaN.

    Raises:
        ParseError: it is no split.
    """
    given = fields.get("split")
    split = "" if is_missing(given) else str(given).strip()
    if split and split not in SPLITS:
        raise ParseError(
            f"the split is {shown(given, 50)}{near_names(split, SPLITS)}", expected=f"one of {', '.join(SPLITS)}"
        )
    return split


class ReadExamples(NamedTuple):
    """What was read of some examples.

    Attributes:
        forest: the good ones, in order.
        places: which of the examples these are.
        errors: what is wrong with the others, by their place.
    """

    forest: Forest
    places: list[int]
    errors: dict[int, str]


def read_examples(reader: RecordReader, examples: Sequence[Example], lines: Sequence[int]) -> ReadExamples:
    """Read examples one by one; a bad one is told and left out.

    Args:
        reader: reads one.
        examples: what is to be read.
        lines: where each of them stands, for the messages.
    """
    trees, places, errors = [], [], {}
    for place, example in enumerate(examples):
        try:
            trees.append(reader.read(example))
        except TreememError as error:
            errors[place] = told_in_a_line(error, lines[place])
        else:
            places.append(place)
    return ReadExamples(Forest.from_nodes(trees), places, errors)


def told_in_a_line(error: TreememError, line: int) -> str:
    """What is wrong with the record of a line, without the excerpt of its text."""
    return in_one_line(error.at(line) if isinstance(error, (ParseError, VocabularyError)) else f"line {line}: {error}")


def in_one_line(error: TreememError | str) -> str:
    """The message of an error without the excerpt of its text."""
    return " ".join(str(error).partition("\n")[0].split())


def first_refused(count: int, check: Callable[[int, int], object]) -> tuple[int, TreememError] | None:
    """Return the first of many examples that a check refuses, and its error; see :func:`find_refused`."""
    try:
        check(0, count)
    except TreememError as error:
        first, end, refused = 0, count, error
    else:
        return None
    while end - first > 1:
        middle = (first + end) // 2
        try:
            check(first, middle)
        except TreememError as error:
            end, refused = middle, error
        else:
            first = middle
    try:
        check(first, end)
    except TreememError as error:
        refused = error
    return first, refused


def find_refused(count: int, check: Callable[[int, int], object]) -> dict[int, TreememError]:
    """Which of many examples a check of several at once refuses, each with its error; halving finds them.

    Args:
        count: how many there are.
        check: given the first and the end of a range of examples, raises ``TreememError`` where one of them is bad.
    """
    refused: dict[int, TreememError] = {}
    ranges = [(0, count)] if count else []
    while ranges:
        begin, end = ranges.pop()
        try:
            check(begin, end)
        except TreememError as error:
            if end - begin == 1:
                refused[begin] = error
            else:
                middle = (begin + end) // 2
                ranges += [(begin, middle), (middle, end)]
    return refused
