"""Read equations from users' files and from the published JSON files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError, quoted
from treemem.records import read_json, read_records, read_source
from treemem.trees.bridges.sympy import tree_from_sympy
from treemem.trees.forest import Forest
from treemem.trees.formats.as_tree import is_sympy
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.equations.labels import (
    BINARY_FUNCTIONS,
    EQUALITY,
    LEAF_LABELS,
    NUMBER,
    UNARY_FUNCTIONS,
    UNIFIED_LABELS,
)
from treemem.trees.formats.equations.names import VariableNames
from treemem.trees.formats.equations.parser import equation_nodes
from treemem.trees.formats.preorder import parse_preorder
from treemem.trees.formats.record_reader import (
    YES_OR_NO,
    RecordReader,
    class_number,
    find_refused,
    header_with,
    split_of,
    text_of,
)
from treemem.trees.tree import Node, Tree, tree_from_postorder, tree_nodes
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)
_CHUNK = 20_000
_FORMS = "equation, lhs and rhs, preorder, or tree"
_PUBLISHED_FORM = "a list over depth of lists of records"
_MISSING = "#"  # stands for a child that is not there


def equation_vocabulary(*, numeric: bool = False) -> Vocabulary:
    """Return the 25 unary and 4 binary functions, each with its own parameters, and the 34 leaves.

    Args:
        numeric: whether ``Number`` leaves, which carry a value, are known too.
    """
    functions = [(label, 1) for label in UNARY_FUNCTIONS] + [(label, 2) for label in BINARY_FUNCTIONS]
    return Vocabulary(LEAF_LABELS, functions, number=NUMBER if numeric else None)


@dataclass(frozen=True)
class BadRecord:
    """A record that is not an equation.

    Attributes:
        place: where it is, such as ``"line 7"``.
        id: its ``id`` field, else its line number.
        error: what is wrong with it.
        number: its number among all records of the file, from 0.
    """

    place: str
    id: Any
    error: TreememError
    number: int


@dataclass(frozen=True, eq=False)
class EquationFile:
    """The equations of a file.

    Attributes:
        forest: the good equations in order; ``tree_data["label"]`` is 1 for correct, 0 for incorrect, -1 for unknown.
        ids: the ``id`` field or line number of each equation of ``forest``.
        bad: the records that are no equations, in order.
        left_out: the records of a published file that are left out for their decimal numbers, in order.
    """

    forest: Forest
    ids: list[Any]
    bad: list[BadRecord] = field(default_factory=list)
    left_out: list[BadRecord] = field(default_factory=list)

    @property
    def dropped(self) -> int:
        """The number of records in ``left_out``."""
        return len(self.left_out)


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

    A text line is an equation, optionally followed by a tab and its label. In CSV, JSONL and Parquet, the first of the
    fields ``equation``, ``lhs`` and ``rhs``, ``preorder``, ``tree`` that is present is read, and ``label`` and ``id``
    if present. A file named ``.json`` (or ``.json.gz``) is read in the published format; see :func:`read_published`.

    Args:
        source: a path, or ``"-"`` for standard input.
        format: ``"text"``, ``"csv"``, ``"jsonl"``, ``"parquet"`` or ``"published"``; by default the name decides.
        variables: ``"appearance"`` numbers the variables of infix text in order of first appearance; ``"indexed"``
            reads the published names x y z w v4 v5 ..., which keep their index.
        numeric: keep decimal numbers as they are, in ``Number`` leaves.
        keep: other fields to keep, as text, in ``tree_data``; empty if a record does not have one.
        strict: raise at the first record that is not an equation; by default it is collected in ``bad``.

    Raises:
        RecipeError: the file does not exist, its format is unknown, or it is a table without a column of equations.
        ParseError: the file as a whole is damaged, or (with ``strict``) a record is not an equation.
        VocabularyError, GraphError: with ``strict``, an equation with an unknown label or of the wrong form.
    """
    name = os.fspath(source)
    if format is None and name.lower().removesuffix(".gz").endswith(".json"):
        format = "published"
    published = format == "published"
    rows = _published_rows(source) if published else _record_rows(source, format, strict)
    reader, vocabulary = EquationRecords(numeric, variables), equation_vocabulary(numeric=numeric)
    chunks: list[Forest] = []
    ids: list[Any] = []
    bad: list[BadRecord] = []
    left_out: list[BadRecord] = []
    total = 0
    while (chunk := list(islice(rows, _CHUNK))) or not chunks:
        kept = []
        for row in chunk:
            row.number, total = total, total + 1
            _read_row(row, reader, keep)
            has_numbers = published and any(value is not None for _, _, value in row.nodes)
            if has_numbers and (not numeric or row.label == 0):
                problem = GraphError("the equation has decimal numbers")
                left_out.append(BadRecord(row.place, row.id, _located(row, problem, name), row.number))
            else:
                kept.append(row)
            if strict and row.error is not None:
                break
        parsed = [row for row in kept if row.error is None]
        forest = Forest.from_nodes([row.nodes for row in parsed])
        for index, unknown in _unknown_labels(forest, vocabulary).items():
            parsed[index].error = unknown
        wrong = [
            BadRecord(row.place, row.id, _located(row, row.error, name), row.number)
            for row in kept
            if row.error is not None
        ]
        if strict and wrong:
            raise wrong[0].error
        good = [row for row in parsed if row.error is None]
        data = {field: np.array([row.kept[place] for row in good], str) for place, field in enumerate(keep)}
        data["label"] = np.array([row.label for row in good], np.int8)
        known = np.array([row.error is None for row in parsed], bool)
        chunks.append(forest[known].with_data(tree_data=data))
        ids += [row.id for row in good]
        bad += wrong
    file = EquationFile(Forest.concatenate(chunks), ids, bad, left_out)
    if bad:
        _logger.warning("%s: %d of %d records are no equations; first %s", name, len(bad), total, bad[0].error)
    if left_out:
        _logger.info("%s: %d numeric equations left out", name, len(left_out))
    return file


def _read_row(row: _Row, reader: EquationRecords, keep: Sequence[str]) -> None:
    """Fill in the equation, label and kept fields of ``row``, or what is wrong with them."""
    try:
        if row.error is None:
            row.nodes = reader.nodes(row.fields)
            row.label = class_number(row.fields, ["label"], YES_OR_NO)
            row.kept = ["" if row.fields.get(field) is None else str(row.fields[field]) for field in keep]
            if "split" in keep:
                row.kept[keep.index("split")] = split_of(row.fields)
    except TreememError as error:
        row.error = error


def _located(row: _Row, error: TreememError, name: str) -> TreememError:
    """Return ``error`` with the file and the place of the record."""
    if isinstance(error, (ParseError, VocabularyError)):
        return error.at(row.line, name) if row.line else error.at(1, f"{name}, {row.place}")
    return type(error)(f"{name}, {row.place}: {error}")


def read_published(source: str | os.PathLike[str], *, numeric: bool = False, strict: bool = False) -> EquationFile:
    """Read a file in the published JSON format: a list over depth of lists of records.

    Leaves of equal meaning are unified (``One:1`` is ``Integer:1``, ``Rational:0`` is ``Integer:0``). Equations with
    ``Number`` leaves are left out unless ``numeric``; incorrect ones among them are always left out.

    Arguments and errors are those of :func:`read_equations`.
    """
    return read_equations(source, format="published", numeric=numeric, strict=strict)


@dataclass
class EquationRecords(RecordReader):
    """Reads equations as :func:`read_equations` does, without labels; ``One:1`` becomes ``Integer:1``.

    Args:
        numeric, variables: as for :func:`read_equations`.
    """

    text_fields: ClassVar[tuple[str, ...]] = ("equation", "label")
    example_fields: ClassVar[tuple[str, ...]] = ("equation", "lhs", "rhs", "preorder", "tree")

    numeric: bool = False
    variables: VariableNames = "appearance"

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        """Return the equation of the first of ``equation``, ``lhs`` and ``rhs``, ``preorder``, ``tree`` present."""
        if fields.get("equation") is not None:
            return equation_nodes(text_of(fields, ["equation"]), variables=self.variables, numeric=self.numeric)
        missing = [side for side in ("lhs", "rhs") if fields.get(side) is None]
        if not missing:
            left, right = (text_of(fields, [side]) for side in ("lhs", "rhs"))
            return equation_nodes(left, right, variables=self.variables, numeric=self.numeric)
        if fields.get("preorder") is not None:
            tree = parse_preorder(text_of(fields, ["preorder"]))
        elif fields.get("tree") is not None:
            tree = parse_brackets(text_of(fields, ["tree"]))
        elif len(missing) == 1:
            raise ParseError(f"the field {missing[0]!r} is missing or empty", expected="a text in both lhs and rhs")
        else:
            there = quoted(fields, most=20) or "(none)"
            raise ParseError(f"no equation among the fields {there:.200}", expected=_FORMS)
        return tree_nodes(self.checked_tree(tree))

    def checked_tree(self, tree: Tree) -> Tree:
        if tree.label != EQUALITY or tree.arity != 2:
            raise GraphError(f"the root is {tree.label!r} with {tree.arity} children; it must be {EQUALITY!r} with 2")
        labels, arities, values = zip(*tree_nodes(tree), strict=True)
        if UNIFIED_LABELS.keys().isdisjoint(labels):
            return tree
        return tree_from_postorder((UNIFIED_LABELS.get(label, label) for label in labels), arities, values)

    def tree_of(self, example: object) -> Tree:
        """Return the equation of a sympy ``Eq``, or of another form."""
        if is_sympy(example):
            return tree_from_sympy(example, variables=self.variables, numeric=self.numeric)
        return super().tree_of(example)

    def joined(self, trees: Sequence[Tree]) -> Tree:
        if len(trees) != 2:
            raise GraphError(f"an equation has two sides, not {len(trees)}")
        return Tree(EQUALITY, trees)


@dataclass
class _Row:
    """A record: its equation, or what is wrong with it."""

    place: str
    id: Any
    line: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    error: TreememError | None = None
    nodes: list[Node] = field(default_factory=list)
    label: int = -1
    kept: list[str] = field(default_factory=list)
    number: int = 0


def _record_rows(source: str | os.PathLike[str], format: str | None, strict: bool) -> Iterator[_Row]:
    names, examples = EquationRecords.text_fields, EquationRecords.example_fields
    known = header_with(names, examples)
    for record in read_records(
        source, format=format, text_fields=names, header_of=known, one_of=examples, strict=strict
    ):
        identity = record.fields.get("id")
        identity = record.line if identity is None else identity
        yield _Row(f"line {record.line}", identity, record.line, record.fields, record.error)


def _published_rows(source: str | os.PathLike[str]) -> Iterator[_Row]:
    """Yield the records of a published file; the first record of a depth is number 1.

    Raises:
        RecipeError: the file does not exist.
        ParseError: it is not JSON, or not a list of lists.
    """
    name = os.fspath(source)
    depths = read_json(read_source(source), name, _PUBLISHED_FORM)
    if not isinstance(depths, list) or not all(isinstance(records, list) for records in depths):
        raise ParseError("JSON of another form", expected=_PUBLISHED_FORM, source=name)
    for depth, records in enumerate(depths):
        for number, record in enumerate(records, start=1):
            row = _Row(f"depth {depth}, record {number}", f"depth {depth}, record {number}")
            try:
                row.fields = _published_fields(record)
            except GraphError as error:
                row.error = error
            yield row


def _published_fields(record: Any) -> dict[str, Any]:
    """Return the fields ``preorder``, ``label`` and ``blank_node`` (place in preorder) of a published record.

    Published trees are in preorder, with two children for each node; ``#`` stands for a missing child.

    Raises:
        GraphError: the equation is missing, or its columns do not fit together.
    """
    equation = record.get("equation") if isinstance(record, Mapping) else None
    if not isinstance(equation, Mapping) or not all(isinstance(equation.get(name), str) for name in ("func", "vars")):
        raise GraphError("it has no field 'equation' with comma-separated text in 'func' and 'vars'")
    functions, variables = (equation[name].split(",") for name in ("func", "vars"))
    if len(functions) != len(variables):
        raise GraphError(f"'func' has {len(functions)} entries and 'vars' {len(variables)}")
    words = [
        f"{function}:{variable}" if variable else function
        for function, variable in zip(functions, variables, strict=True)
        if function != _MISSING
    ]
    missing = len(functions) - len(words)
    if missing != len(words) + 1:
        raise GraphError(
            f"{len(words)} nodes have {len(words) + 1} missing children; 'func' has {missing} {_MISSING!r}"
        )
    fields = {"preorder": " ".join(words), "label": record.get("label")}
    if record.get("blankNodeNum") is not None:
        blank, given = str(record["blankNodeNum"]), str(equation.get("nodeNum"))
        numbers = [number for number in given.split(",") if number != _MISSING]
        fields["blank_node"] = numbers.index(blank) if blank in numbers else f"number {blank}, which no node has"
    return fields


def _unknown_labels(forest: Forest, vocabulary: Vocabulary) -> dict[int, VocabularyError]:
    """Return the error of each equation with an unknown label, by the number of the equation."""
    sides = forest.split_roots()
    refused = find_refused(len(forest), lambda begin, end: vocabulary.encode(sides[2 * begin : 2 * end]))
    return {equation: VocabularyError(str(error).partition(": ")[2]) for equation, error in refused.items()}
