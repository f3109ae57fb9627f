"""Rows of a table: their trees, targets and splits."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_choice
from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, in_row, near_names, quoted
from treemem.model import is_data_frame
from treemem.records import format_of, read_records
from treemem.trees.as_tree import as_tree
from treemem.trees.brackets import parse_brackets
from treemem.trees.equation_parser import parse_equation, parse_expression
from treemem.trees.forest import Forest
from treemem.trees.listops import parse_listops
from treemem.trees.logic import parse_logic
from treemem.trees.postorder_nodes import Node, forest_of_nodes, tree_nodes
from treemem.trees.preorder import parse_preorder
from treemem.trees.record_reader import RecordReader, is_missing, split_of
from treemem.trees.tree import Tree

SPLIT = "split"
TextForm = Literal["brackets", "json", "expression", "equation", "preorder", "listops", "logic"]
ClassName = str | bool | int | float
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.0)?")
PARSERS: dict[str, Callable[[str], Tree]] = {
    "brackets": parse_brackets,
    "expression": parse_expression,
    "equation": parse_equation,
    "preorder": parse_preorder,
    "listops": parse_listops,
    "logic": parse_logic,
}


@dataclass(frozen=True)
class TableDataOptions:
    """How the rows are divided if the table has no column ``split``.

    Args:
        validation: share of the rows to validate with.
        test: share of the rows to test with.
        seed: of the division.

    Raises:
        RecipeError: the shares are negative or leave nothing to train on.
    """

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1:
            raise RecipeError("data.validation and data.test are shares of the rows: at least 0, and below 1 together")


class Table(NamedTuple):
    """The rows of a table.

    Attributes:
        forest: a tree for each row.
        targets: a list for each target column; None for a missing value.
        split: of each row; None if the table has no such column.
        rows: the line of each row in its file, its index in a DataFrame, or its number from 1.
        where: what ``rows`` counts: ``"row"``, or ``"FILE, line"``.
    """

    forest: Forest
    targets: list[list[Any]]
    split: NDArray[Any] | None
    rows: list[Any]
    where: str

    def place(self, number: int) -> str:
        """Return where the row of this number, from 0, is."""
        return f"{self.where} {self.rows[number]}"

    def numbers(self, column: int, name: str) -> NDArray[np.float64]:
        """Return the numbers of a target column, float64 ``[rows]``; NaN for a missing one.

        Raises:
            RecipeError: a value that is no finite number.
        """
        values = self.targets[column]
        found = np.full(len(values), np.nan)
        for number, value in enumerate(values):
            if value is None:
                continue
            try:
                found[number] = float(value)
            except (TypeError, ValueError, OverflowError):
                found[number] = math.inf
            if not math.isfinite(found[number]):
                raise RecipeError(f"{self.place(number)}: {name} must be a finite number, not {value!r:.100}")
        return found


@dataclass
class TableRecords(RecordReader):
    """Reads trees out of a column.

    Args:
        tree: name of the column.
        text: how its texts describe trees.
        number: label of leaves that keep numbers as values, in texts in JSON and in nested data.

    Raises:
        RecipeError: the form of the texts is unknown.
    """

    tree: str
    text: TextForm = "brackets"
    number: str | None = None

    def __post_init__(self) -> None:
        checked_choice("text", self.text, (*PARSERS, "json"))

    @property
    def text_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.tree,)

    @property
    def example_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.tree,)

    def parse(self, text: str) -> Tree:
        """Return the tree that a text describes.

        Raises:
            ParseError, GraphError, VocabularyError: it describes none.
        """
        if self.text != "json":
            return PARSERS[self.text](text)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"this is not JSON: {error}", text[:100]) from error
        return as_tree(data, number=self.number)

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        cell = fields.get(self.tree)
        if is_missing(cell):
            if self.tree in fields:
                raise ParseError(f"the field {self.tree!r} is empty")
            there = quoted(fields, most=20) or "(none)"
            near = near_names(self.tree, [*map(str, fields)])
            raise ParseError(f"no field {self.tree!r} among {there:.200}{near}")
        return tree_nodes(self.parse(cell) if isinstance(cell, str) else self.tree_of(cell))

    def tree_of(self, example: object) -> Tree:
        return as_tree(example, number=self.number)


def read_table(source: Any, reader: TableRecords, target: Sequence[str], format: str | None = None) -> Table:
    """Return the rows of a file, whose format its name tells by default, of a DataFrame, or of mappings.

    Raises:
        RecipeError: the file does not exist, there is no row, or a column is missing.
        ParseError, GraphError, VocabularyError: a tree that cannot be read, with its row.
    """
    name, where = "", "row"
    rows: Iterable[tuple[Any, Mapping[str, Any]]]
    is_file = isinstance(source, (str, os.PathLike))
    if is_file:
        name = f"{os.fspath(source)}, "
        where = f"{name}line"
        records = read_records(source, format=format, text_fields=(reader.tree, *target), one_of=(reader.tree,))
        rows = ((record.line, record.fields) for record in records)
    elif is_data_frame(source):
        rows = zip(source.index, source.to_dict("records"), strict=True)
    else:
        rows = enumerate(source, start=1)
    trees: list[list[Node]] = []
    splits: list[str] = []
    targets: list[list[Any]] = [[] for _ in target]
    lines: list[Any] = []
    for line, fields in rows:
        for column in (reader.tree, *target):
            if column not in fields and not trees:
                raise RecipeError(f"{name}no column {column!r}{near_names(column, [*map(str, fields)])}")
        try:
            trees.append(reader.read(dict(fields)))
            splits.append(split_of(fields))
        except (ParseError, VocabularyError) as error:
            raise (error.at(line, os.fspath(source)) if is_file else in_row(line, error)) from error
        except GraphError as error:
            raise GraphError(f"{where} {line}: {error}") from error
        for column, values in zip(target, targets, strict=True):
            value = fields.get(column)
            values.append(None if is_missing(value) or (isinstance(value, str) and not value) else value)
        lines.append(line)
    if not trees:
        raise RecipeError(f"{name}there is no row")
    if is_file and format_of(os.fspath(source), format) in ("csv", "text"):
        targets = [_whole_numbers(values) for values in targets]
    return Table(forest_of_nodes(trees), targets, np.array(splits) if any(splits) else None, lines, where)


def _whole_numbers(cells: list[Any]) -> list[Any]:
    """Return the texts of a column as numbers if all are whole numbers, else as they are."""
    if any(cell is not None and not _WHOLE_NUMBER.fullmatch(cell) for cell in cells):
        return cells
    return [None if cell is None else int(cell.removesuffix(".0")) for cell in cells]


def classes_of(values: Iterable[Any]) -> tuple[ClassName, ...]:
    """Return the distinct classes among values, sorted: numbers if all values are numbers, else texts."""
    found = [_plain_class(value) for value in values if value is not None]
    is_truth = [isinstance(value, bool) for value in found]
    if all(is_truth) or not (any(is_truth) or any(isinstance(value, str) for value in found)):
        return tuple(sorted(set(found)))
    return tuple(sorted(set(map(str, found))))


def class_key(value: Any) -> str:
    """Return what names a class, whether a cell holds it as a text, an int or a float."""
    return str(_plain_class(value))


def _plain_class(value: Any) -> ClassName:
    """Return a value as a text, a truth value or a number; a whole number as an int."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, (bool, int, float)) else str(value)


def divided(table: Table, options: TableDataOptions) -> NDArray[Any]:
    """Return the split of each row: that of the table, or one that is drawn."""
    if table.split is not None:
        return table.split
    count = len(table.forest)
    order = np.random.default_rng(options.seed).permutation(count)
    num_test, num_validation = round(options.test * count), round(options.validation * count)
    split = np.full(count, "train", "<U10")
    split[order[:num_test]] = "test"
    split[order[num_test : num_test + num_validation]] = "validation"
    return split
