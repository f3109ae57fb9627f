"""Equations out of users' files and out of the published JSON files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from treemem.errors import GraphError, ParseError, RecipeError, TreememError, VocabularyError
from treemem.records import Record, read_records
from treemem.tasks.equation_verification.published_records import published_trees, read_published_records
from treemem.tasks.equation_verification.vocabulary import equation_vocabulary
from treemem.trees.brackets import parse_brackets
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.equation_names import VariableNames
from treemem.trees.equation_parser import equation_nodes
from treemem.trees.forest import Forest
from treemem.trees.postorder_nodes import Node, forest_of_nodes, tree_nodes
from treemem.trees.preorder import parse_preorder
from treemem.trees.record_reader import RecordReader, find_refused, split_of, text_of
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)
_CHUNK = 20_000
_FORMS = "equation, lhs and rhs, preorder, or tree"
_LABELS = {"1": 1, "0": 0, "true": 1, "false": 0, "-1": -1, "": -1}


@dataclass(frozen=True)
class BadRecord:
    """A record that is no equation.

    Attributes:
        place: where it stands, such as ``"line 7"``.
        id: what its ``id`` field says, else its line number.
        error: what is wrong with it.
    """

    place: str
    id: Any
    error: TreememError


@dataclass(frozen=True, eq=False)
class EquationFile:
    """What a file of equations holds.

    Attributes:
        forest: the good equations in order; ``tree_data["label"]`` is 1 for correct, 0 for incorrect, -1 for not said.
        ids: what the ``id`` fields say, else line numbers; one for each of ``forest``.
        bad: the other records, in order.
        dropped: equations left out on purpose: those with decimal numbers where numeric ones were not asked for.
    """

    forest: Forest
    ids: list[Any]
    bad: list[BadRecord] = field(default_factory=list)
    dropped: int = 0


def read_equations(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
    vocabulary: Vocabulary | None = None,
    keep: Sequence[str] = (),
    strict: bool = False,
) -> EquationFile:
    """Read a file of equations.

    A text line is an equation, and after a tab its label if it has one. Of a record of CSV, JSONL or Parquet the first
    of the fields ``equation``, ``lhs`` and ``rhs``, ``preorder``, ``tree`` that is present is read, and ``label`` and
    ``id`` if it has them. A file named ``.json`` (or ``.json.gz``) is one in the published format.

    Args:
        source: a path, or ``"-"`` for standard input.
        format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default.
        variables: ``"appearance"`` numbers the variables of infix text in order of first appearance; ``"indexed"``
            reads the published names x y z w v4 v5 ..., which keep their index.
        numeric: keep decimal numbers as they are, in ``Number`` leaves.
        functions: arities of own functions in infix text, by name.
        vocabulary: which labels there may be; the task's own by default.
        keep: other fields of the records to keep, as text, in ``tree_data``; empty where a record does not have one.
        strict: raise at the first record that is no equation, rather than collect it in ``bad``.

    Raises:
        RecipeError: there is no such file, its format cannot be told, it is a table without a column of equations, or
            it is in the published format and own functions or labels are asked for.
        ParseError: the file as a whole is damaged, or (with ``strict``) a record is no equation.
        VocabularyError, GraphError: with ``strict``, an equation with an unknown label or of the wrong form.
    """
    name = os.fspath(source)
    if format is None and name.lower().removesuffix(".gz").endswith(".json"):
        if functions or vocabulary is not None:
            raise RecipeError(f"{name} is in the published format, which has functions and labels of its own")
        file = read_published(source, numeric=numeric, strict=strict)
        absent = {field: np.full(len(file.forest), "") for field in keep}
        return replace(file, forest=file.forest.with_data(tree_data={**absent, **file.forest.tree_data}))
    known = equation_vocabulary(numeric=numeric) if vocabulary is None else vocabulary
    collector = _Collector(name, known, strict, keep)
    reader = EquationRecords
    for record in read_records(
        source, format=format, text_fields=reader.text_fields, one_of=reader.example_fields, strict=strict
    ):
        identity = record.fields.get("id")
        identity = record.line if identity is None else identity
        try:
            if record.error is not None:
                raise record.error
            nodes = nodes_of_fields(record.fields, variables=variables, numeric=numeric, functions=functions)
            label = _label_of(record)
            kept = ["" if record.fields.get(field) is None else str(record.fields[field]) for field in keep]
            if "split" in keep:
                kept[keep.index("split")] = split_of(record.fields)
        except TreememError as error:
            collector.refuse(f"line {record.line}", identity, error, record.line)
        else:
            collector.add(nodes, label, f"line {record.line}", identity, kept)
    return collector.finish()


def read_published(source: str | os.PathLike[str], *, numeric: bool = False, strict: bool = False) -> EquationFile:
    """Read a file in the published JSON format: a list over depth of lists of records.

    Leaves that say the same are read as one (``One:1`` as ``Integer:1``, ``Rational:0`` as ``Integer:0``). Equations
    with ``Number`` leaves are left out unless ``numeric``, and incorrect ones among them always.

    Args:
        source: a path.
        numeric: keep equations with ``Number`` leaves.
        strict: raise at the first record that is no equation, rather than collect it in ``bad``.

    Raises:
        RecipeError: there is no such file.
        ParseError: it is no JSON, or not of this form.
        VocabularyError, GraphError: with ``strict``, a record with an unknown token or of the wrong form.
    """
    name = os.fspath(source)
    collector = _Collector(name, equation_vocabulary(numeric=numeric), strict)
    for place, item in published_trees(read_published_records(source)):
        if isinstance(item, TreememError):
            collector.refuse(place, place, item)
            continue
        tree, label = item
        has_number = any(leaf.value is not None for leaf in tree.leaves())
        if has_number and (not numeric or label == 0):
            collector.dropped += 1
        else:
            collector.add(tree_nodes(tree), label, place, place)
    return collector.finish()


def nodes_of_fields(
    fields: Mapping[str, Any],
    *,
    variables: VariableNames = "appearance",
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> list[Node]:
    """The equation of one record as nodes in post-order; its root is ``Equality``.

    Raises:
        ParseError: the record has none of the fields, or its text is no equation.
        GraphError: a tree whose root is not ``Equality`` over two sides.
        VocabularyError: more variables than there are.
    """
    options: dict[str, Any] = {"variables": variables, "numeric": numeric, "functions": functions}
    if fields.get("equation") is not None:
        return equation_nodes(text_of(fields, ["equation"]), **options)
    if fields.get("lhs") is not None and fields.get("rhs") is not None:
        return equation_nodes(text_of(fields, ["lhs"]), text_of(fields, ["rhs"]), **options)
    if fields.get("preorder") is not None:
        tree = parse_preorder(text_of(fields, ["preorder"]), functions=functions)
    elif fields.get("tree") is not None:
        tree = parse_brackets(text_of(fields, ["tree"]))
    else:
        there = ", ".join(map(str, fields)) or "(none)"
        raise ParseError(f"no equation among the fields {there:.200}", expected=_FORMS)
    return tree_nodes(_checked_equation(tree))


def _checked_equation(tree: Tree) -> Tree:
    if tree.label != EQUALITY or tree.arity != 2:
        raise GraphError(f"the root is {tree.label!r} with {tree.arity} children; it must be {EQUALITY!r} with 2")
    return tree


@dataclass
class EquationRecords(RecordReader):
    """Reads equations as :func:`read_equations` does, labels left aside.

    Args:
        numeric: keep decimal numbers as they are, in ``Number`` leaves.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("equation", "label")
    example_fields: ClassVar[tuple[str, ...]] = ("equation", "lhs", "rhs", "preorder", "tree")

    numeric: bool = False

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        """The equation of ``equation``, ``lhs`` and ``rhs``, ``preorder`` or ``tree``, whichever is first there."""
        return nodes_of_fields(fields, numeric=self.numeric)

    def checked_tree(self, tree: Tree) -> Tree:
        return _checked_equation(tree)

    def joined(self, trees: Sequence[Tree]) -> Tree:
        if len(trees) != 2:
            raise GraphError(f"an equation has two sides, not {len(trees)}")
        return Tree(EQUALITY, trees)


def _label_of(record: Record) -> int:
    """1 for correct, 0 for incorrect, -1 where the record does not say."""
    given = record.fields.get("label")
    said = "" if given is None or given != given else str(given).strip().lower().removesuffix(".0")
    if said not in _LABELS:
        raise ParseError(f"the label is {given!r}", expected="1 or 0, true or false, or nothing")
    return _LABELS[said]


class _Collector:
    """Gathers equations into arrays, some thousands at a time, and sorts out those with unknown labels."""

    def __init__(self, name: str, vocabulary: Vocabulary, strict: bool, keep: Sequence[str] = ()) -> None:
        self.name, self.vocabulary, self.strict, self.keep = name, vocabulary, strict, tuple(keep)
        self.dropped = 0
        self._chunks: list[Forest] = []
        self._ids: list[Any] = []
        self._bad: list[tuple[int, BadRecord]] = []
        self._trees: list[list[Node]] = []
        self._labels: list[int] = []
        self._kept: list[Sequence[str]] = []
        self._places: list[tuple[int, str, Any]] = []
        self._count = 0

    def add(self, nodes: list[Node], label: int, place: str, identity: Any, kept: Sequence[str] = ()) -> None:
        """Take in an equation, and the fields of its record that are kept."""
        self._trees.append(nodes)
        self._kept.append(kept)
        self._labels.append(label)
        self._places.append((self._count, place, identity))
        self._count += 1
        if len(self._trees) == _CHUNK:
            self._flush()

    def refuse(self, place: str, identity: Any, error: TreememError, line: int | None = None) -> None:
        """Note a record that is no equation."""
        if self.strict:
            self._flush()  # a record before this one may be wrong too
        self._refuse(self._count, place, identity, error, line)
        self._count += 1

    def finish(self) -> EquationFile:
        """All that was taken in."""
        self._flush()
        forest = Forest.concatenate(self._chunks)
        bad = [record for _, record in sorted(self._bad, key=lambda numbered: numbered[0])]
        if bad:
            total = len(bad) + len(forest) + self.dropped
            _logger.warning("%s: %d of %d records are no equations; first %s", self.name, len(bad), total, bad[0].error)
        if self.dropped:
            _logger.info("%s: %d numeric equations left out", self.name, self.dropped)
        return EquationFile(forest, self._ids, bad, self.dropped)

    def _refuse(self, number: int, place: str, identity: Any, error: TreememError, line: int | None = None) -> None:
        if isinstance(error, (ParseError, VocabularyError)) and line is not None:
            located: TreememError = error.at(line, self.name)
        else:
            located = type(error)(f"{self.name}, {place}: {error}")
        if self.strict:
            raise located from error
        self._bad.append((number, BadRecord(place, identity, located)))

    def _flush(self) -> None:
        kept = {name: np.array([row[place] for row in self._kept], str) for place, name in enumerate(self.keep)}
        data = {**kept, "label": np.array(self._labels, np.int8)}
        forest = forest_of_nodes(self._trees).with_data(tree_data=data)
        unknown = _unknown_labels(forest, self.vocabulary)
        for index in sorted(unknown):
            self._refuse(*self._places[index], VocabularyError(unknown[index]))
        keep = np.array([index not in unknown for index in range(len(forest))], bool)
        self._ids.extend(identity for index, (_, _, identity) in enumerate(self._places) if keep[index])
        self._chunks.append(forest[keep] if unknown else forest)
        self._trees, self._labels, self._kept, self._places = [], [], [], []


def _unknown_labels(forest: Forest, vocabulary: Vocabulary) -> dict[int, str]:
    """The equations that the vocabulary does not know, with what it says of them."""
    sides = forest.split_roots()
    refused = find_refused(len(forest), lambda begin, end: vocabulary.encode(sides[2 * begin : 2 * end]))
    return {equation: str(error).partition(": ")[2] for equation, error in refused.items()}
