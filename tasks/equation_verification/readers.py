"""Equations out of users' files and out of the published JSON files."""

from __future__ import annotations

import gzip
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError, near_names
from treemem.records import Record, open_source, read_records
from treemem.trees.brackets import parse_brackets
from treemem.trees.equation_labels import (
    BINARY_FUNCTIONS,
    EQUALITY,
    FUNCTION_ARITIES,
    LEAF_LABELS,
    NUMBER,
    UNARY_FUNCTIONS,
    UNIFIED_LABELS,
)
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


def equation_vocabulary(*, numeric: bool = False) -> Vocabulary:
    """25 unary and 4 binary functions, each with parameters of its own, and 34 leaves.

    Args:
        numeric: whether ``Number`` leaves, which carry a value, are known too.
    """
    functions = [(label, 1) for label in UNARY_FUNCTIONS] + [(label, 2) for label in BINARY_FUNCTIONS]
    return Vocabulary(LEAF_LABELS, functions, number=NUMBER if numeric else None)


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
    keep: Sequence[str] = (),
    strict: bool = False,
) -> EquationFile:
    """Read a file of equations.

    A text line is an equation, and after a tab its label if it has one. Of a record of CSV, JSONL or Parquet the first
    of the fields ``equation``, ``lhs`` and ``rhs``, ``preorder``, ``tree`` that is present is read, and ``label`` and
    ``id`` if it has them. A file named ``.json`` (or ``.json.gz``) is one in the published format.

    Args:
        source: a path, or ``"-"`` for standard input.
        format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; by default the name tells.
        variables: ``"appearance"`` numbers the variables of infix text in order of first appearance; ``"indexed"``
            reads the published names x y z w v4 v5 ..., which keep their index.
        numeric: keep decimal numbers as they are, in ``Number`` leaves.
        keep: other fields of the records to keep, as text, in ``tree_data``; empty if a record does not have one.
        strict: raise at the first record that is no equation; by default it is collected in ``bad``.

    Raises:
        RecipeError: there is no such file, its format cannot be told, or it is a table without a column of equations.
        ParseError: the file as a whole is damaged, or (with ``strict``) a record is no equation.
        VocabularyError, GraphError: with ``strict``, an equation with an unknown label or of the wrong form.
    """
    name = os.fspath(source)
    if format is None and name.lower().removesuffix(".gz").endswith(".json"):
        file = read_published(source, numeric=numeric, strict=strict)
        absent = {field: np.full(len(file.forest), "") for field in keep}
        return replace(file, forest=file.forest.with_data(tree_data={**absent, **file.forest.tree_data}))
    collector = _Collector(name, numeric, strict, keep)
    reader = EquationRecords
    for record in read_records(
        source, format=format, text_fields=reader.text_fields, one_of=reader.example_fields, strict=strict
    ):
        identity = record.fields.get("id")
        row = _Row(f"line {record.line}", record.line if identity is None else identity, record.line)
        try:
            if record.error is not None:
                raise record.error
            row.nodes = nodes_of_fields(record.fields, variables=variables, numeric=numeric)
            row.label = _label_of(record)
            row.kept = ["" if record.fields.get(field) is None else str(record.fields[field]) for field in keep]
            if "split" in keep:
                row.kept[keep.index("split")] = split_of(record.fields)
        except TreememError as error:
            row.error = error
        collector.add(row)
    return collector.finish()


def read_published(source: str | os.PathLike[str], *, numeric: bool = False, strict: bool = False) -> EquationFile:
    """Read a file in the published JSON format: a list over depth of lists of records.

    Leaves that say the same are read as one (``One:1`` as ``Integer:1``, ``Rational:0`` as ``Integer:0``). Equations
    with ``Number`` leaves are left out unless ``numeric``, and incorrect ones among them always.

    Args:
        source: a path.
        numeric: keep equations with ``Number`` leaves.
        strict: raise at the first record that is no equation; by default it is collected in ``bad``.

    Raises:
        RecipeError: there is no such file.
        ParseError: it is no JSON, or not of this form.
        VocabularyError, GraphError: with ``strict``, a record with an unknown token or of the wrong form.
    """
    collector = _Collector(os.fspath(source), numeric, strict)
    for place, record in read_published_records(source):
        row = _Row(place, place)
        try:
            tree, row.label = published_tree(record)
            row.nodes = tree_nodes(tree)
        except (GraphError, VocabularyError) as error:
            row.error = error
        else:
            if has_numbers(tree) and (not numeric or row.label == 0):
                collector.dropped += 1
                continue
        collector.add(row)
    return collector.finish()


def has_numbers(tree: Tree) -> bool:
    """Return whether a tree has ``Number`` leaves."""
    return any(leaf.value is not None for leaf in tree.leaves())


def nodes_of_fields(
    fields: Mapping[str, Any], *, variables: VariableNames = "appearance", numeric: bool = False
) -> list[Node]:
    """Return the equation of one record as nodes in post-order; its root is ``Equality``.

    Raises:
        ParseError: the record has none of the fields, or its text is no equation.
        GraphError: a tree whose root is not ``Equality`` over two sides.
        VocabularyError: more variables than there are.
    """
    if fields.get("equation") is not None:
        return equation_nodes(text_of(fields, ["equation"]), variables=variables, numeric=numeric)
    if fields.get("lhs") is not None and fields.get("rhs") is not None:
        left, right = (text_of(fields, [side]) for side in ("lhs", "rhs"))
        return equation_nodes(left, right, variables=variables, numeric=numeric)
    if fields.get("preorder") is not None:
        tree = parse_preorder(text_of(fields, ["preorder"]))
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
    """Reads equations as :func:`read_equations` does, without their labels.

    Args:
        numeric: keep decimal numbers as they are, in ``Number`` leaves.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("equation", "label")
    example_fields: ClassVar[tuple[str, ...]] = ("equation", "lhs", "rhs", "preorder", "tree")

    numeric: bool = False

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        """Return the equation of the first of ``equation``, ``lhs`` and ``rhs``, ``preorder``, ``tree`` present."""
        return nodes_of_fields(fields, numeric=self.numeric)

    def checked_tree(self, tree: Tree) -> Tree:
        return _checked_equation(tree)

    def joined(self, trees: Sequence[Tree]) -> Tree:
        if len(trees) != 2:
            raise GraphError(f"an equation has two sides, not {len(trees)}")
        return Tree(EQUALITY, trees)


def _label_of(record: Record) -> int:
    """Return 1 for correct, 0 for incorrect, -1 if the record does not say."""
    given = record.fields.get("label")
    label = "" if given is None or given != given else str(given).strip().lower().removesuffix(".0")
    if label not in _LABELS:
        raise ParseError(f"the label is {given!r}", expected="1 or 0, true or false, or nothing")
    return _LABELS[label]


@dataclass
class _Row:
    """A record: an equation, or what is wrong with it."""

    place: str
    id: Any
    line: int | None = None
    nodes: list[Node] = field(default_factory=list)
    label: int = -1
    kept: list[str] = field(default_factory=list)
    error: TreememError | None = None


class _Collector:
    """Turns rows into forests, some thousands at a time, and separates those with errors or unknown labels."""

    def __init__(self, name: str, numeric: bool, strict: bool, keep: Sequence[str] = ()) -> None:
        self.name, self.strict, self.keep = name, strict, keep
        self.vocabulary = equation_vocabulary(numeric=numeric)
        self.dropped = 0
        self._rows: list[_Row] = []
        self._chunks: list[Forest] = []
        self._ids: list[Any] = []
        self._bad: list[BadRecord] = []

    def add(self, row: _Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _CHUNK or (self.strict and row.error is not None):
            self._flush()

    def finish(self) -> EquationFile:
        self._flush()
        forest, bad = Forest.concatenate(self._chunks), self._bad
        if bad:
            total = len(bad) + len(forest) + self.dropped
            _logger.warning("%s: %d of %d records are no equations; first %s", self.name, len(bad), total, bad[0].error)
        if self.dropped:
            _logger.info("%s: %d numeric equations left out", self.name, self.dropped)
        return EquationFile(forest, self._ids, bad, self.dropped)

    def _flush(self) -> None:
        parsed = [row for row in self._rows if row.error is None]
        forest = forest_of_nodes([row.nodes for row in parsed])
        for index, error in _unknown_labels(forest, self.vocabulary).items():
            parsed[index].error = error
        for row in self._rows:
            if row.error is not None:
                self._refuse(row, row.error)
        good = [row for row in parsed if row.error is None]
        data = {name: np.array([row.kept[place] for row in good], str) for place, name in enumerate(self.keep)}
        data["label"] = np.array([row.label for row in good], np.int8)
        known = np.array([row.error is None for row in parsed], bool)
        self._chunks.append(forest[known].with_data(tree_data=data))
        self._ids += [row.id for row in good]
        self._rows = []

    def _refuse(self, row: _Row, error: TreememError) -> None:
        if isinstance(error, (ParseError, VocabularyError)) and row.line is not None:
            located: TreememError = error.at(row.line, self.name)
        else:
            located = type(error)(f"{self.name}, {row.place}: {error}")
        if self.strict:
            raise located from error
        self._bad.append(BadRecord(row.place, row.id, located))


def _unknown_labels(forest: Forest, vocabulary: Vocabulary) -> dict[int, VocabularyError]:
    """Return the error of each equation that has a label the vocabulary does not know, by its number."""
    sides = forest.split_roots()
    refused = find_refused(len(forest), lambda begin, end: vocabulary.encode(sides[2 * begin : 2 * end]))
    return {equation: VocabularyError(str(error).partition(": ")[2]) for equation, error in refused.items()}


MISSING = "#"
"""Stands for a child that is not there."""

_LEAF_CLASSES = frozenset(label.partition(":")[0] for label in LEAF_LABELS)
_PUBLISHED_FORM = "a list over depth of lists of records"


def read_published_records(source: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    """Each record of a file with its place, such as ``"depth 8, record 2"``; the first record of a depth is number 1.

    Raises:
        RecipeError: there is no such file.
        ParseError: it is no JSON, or not a list of lists.
    """
    name = os.fspath(source)
    with open_source(source) as stream:
        try:
            text = stream.read().decode("utf-8-sig")
            depths = json.loads(text)
        except json.JSONDecodeError as error:
            raise ParseError(f"no JSON here ({error.msg})", text, error.pos, _PUBLISHED_FORM, source=name) from error
        except (UnicodeDecodeError, ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ParseError(f"no JSON file ({error})", expected=_PUBLISHED_FORM, source=name) from error
    if not isinstance(depths, list) or not all(isinstance(records, list) for records in depths):
        raise ParseError("JSON of another form", expected=_PUBLISHED_FORM, source=name)
    for depth, records in enumerate(depths):
        for number, record in enumerate(records, start=1):
            yield f"depth {depth}, record {number}", record


def published_tree(record: Any) -> tuple[Tree, int]:
    """The equation of a record, and 1 if it is correct, 0 if not, -1 if the record does not say.

    Raises:
        GraphError: the record's fields, or the arities that they say, do not make a tree.
        VocabularyError: a function or leaf that the published data do not have.
    """
    equation = record.get("equation") if isinstance(record, Mapping) else None
    if not isinstance(equation, Mapping):
        raise GraphError("it has no field 'equation' with 'func' and 'vars'")
    columns = []
    for name in ("func", "vars"):
        if not isinstance(equation.get(name), str):
            raise GraphError(f"its equation has no field {name!r} of comma-separated text")
        columns.append(equation[name].split(","))
    functions, variables = columns
    if len(functions) != len(variables):
        raise GraphError(f"'func' has {len(functions)} entries and 'vars' {len(variables)}")
    label = str(record.get("label", "-1")).strip()
    if label not in ("1", "0", "-1"):
        raise GraphError(f"its label is {label!r}; expected 1, 0 or -1")
    tree = _tree_of(functions, variables)
    if tree.label != EQUALITY:
        raise GraphError(f"the root is {tree.label!r}; it must be {EQUALITY!r}")
    return tree, int(label)


def _tree_of(functions: list[str], variables: list[str]) -> Tree:
    """The tree of a preorder in which every node has two places for children, ``#`` standing for a missing child."""
    pending: list[Tree | None] = []
    for position in range(len(functions) - 1, -1, -1):
        function = functions[position]
        if function == MISSING:
            pending.append(None)
            continue
        if len(pending) < 2:
            raise GraphError(f"entry {position} ({function!r}) lacks the entries of its two children")
        first, second = pending.pop(), pending.pop()
        if first is None and second is not None:
            raise GraphError(f"entry {position} ({function!r}) has a second child without a first")
        children = [child for child in (first, second) if child is not None]
        pending.append(_node(function, variables[position], children, position))
    if len(pending) != 1 or pending[0] is None:
        raise GraphError(f"its entries make {len(pending)} trees, not one")
    return pending[0]


def _node(function: str, variable: str, children: list[Tree], position: int) -> Tree:
    if children:
        arity = FUNCTION_ARITIES.get(function)
        if arity is None:
            raise VocabularyError(
                f"entry {position}: unknown function {function!r}{near_names(function, FUNCTION_ARITIES)}"
            )
        if arity != len(children):
            raise GraphError(f"entry {position}: {function!r} has {len(children)} children, not {arity}")
        return Tree(function, children)
    if function == NUMBER:
        try:
            value = float(variable)
        except ValueError as error:
            raise VocabularyError(f"entry {position}: {variable!r} is no number") from error
        return Tree(NUMBER, value=value)
    label = f"{function}:{variable}"
    if label not in LEAF_LABELS:
        known = LEAF_LABELS if function in _LEAF_CLASSES else (*sorted(_LEAF_CLASSES), *FUNCTION_ARITIES)
        near = near_names(label if function in _LEAF_CLASSES else function, known)
        raise VocabularyError(f"entry {position}: unknown leaf {label!r}{near}")
    return Tree(UNIFIED_LABELS.get(label, label))
