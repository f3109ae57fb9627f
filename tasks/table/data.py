"""Rows of a table: their trees, targets and splits."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import (
    GraphError,
    ParseError,
    RecipeError,
    TreememError,
    VocabularyError,
    in_row,
    near_names,
    quoted,
    shown,
)
from treemem.model import check_frame, is_data_frame
from treemem.records import Record, format_of, read_records
from treemem.tasks.table.cells import (
    MISSING_MARKS,
    ClassName,
    classes_of,
    doubtful_class,
    is_mark,
    letters_of,
    no_class,
    plain_cell,
    typed_column,
)
from treemem.trees.forest import Forest
from treemem.trees.formats.as_tree import as_tree
from treemem.trees.formats.forms import TextForm
from treemem.trees.formats.record_reader import RecordReader, in_one_line, is_missing, split_of, told_in_a_line
from treemem.trees.formats.text_forms import TextReader
from treemem.trees.tree import Node, Tree, tree_nodes

SPLIT = "split"
_NO_TREES = MISSING_MARKS - {"."}  # a sentence may be a full stop

_logger = logging.getLogger(__name__)
_WORD = re.compile(r"[^\s()\[\]{},;:\"]+")
_IN_QUOTES = re.compile(r'"(?:[^"]|"")+"')
_NAME = re.compile(r"[A-Za-z_][\w .-]*")


@dataclass(frozen=True)
class TableDataOptions:
    """How the rows are divided if the table has no column ``split``.

    Args:
        validation: share of the rows to validate with.
        test: share of the rows to test with.
        seed: of the division.
        stratified: whether each class has these shares, for classes and for combinations of labels.
        duplicates_together: whether rows with equal trees stay in one split, so that no test tree is one of training.

    Raises:
        RecipeError: the shares are negative or leave nothing to train on.
    """

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0
    stratified: bool = False
    duplicates_together: bool = True

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1:
            raise RecipeError("data.validation and data.test are shares of the rows: at least 0, and below 1 together")


@dataclass
class BadRows:
    """Rows of a table that are left out.

    Attributes:
        unread: the line and the error of each row without a tree that can be read.
        refused: the errors of other rows, by their number from 0. Lines are not unique: the index of a DataFrame may
            have equal values.
    """

    unread: list[tuple[Any, str]] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


class Table(NamedTuple):
    """The rows of a table.

    Attributes:
        forest: a tree for each row.
        targets: a list for each target column; None for a missing value.
        split: of each row; None if the table has no such column.
        rows: the line of each row in its file, its index in a DataFrame, or its number from 1.
        where: what ``rows`` counts: ``"row"``, or ``"FILE, line"``.
        others: other columns that a task reads, by their names, such as one of weights; None for a missing value.
        bad_rows: the rows that are left out, if bad rows are skipped; None: an error is raised.
    """

    forest: Forest
    targets: list[list[Any]]
    split: NDArray[Any] | None
    rows: list[Any]
    where: str
    others: Mapping[str, list[Any]]
    bad_rows: BadRows | None = None

    def refuse(self, number: int, problem: str) -> None:
        """Raise the error of a row with a bad target, or note it, if bad rows are skipped.

        Raises:
            RecipeError: bad rows are not skipped.
        """
        text = f"{self.place(number)}: {problem}"
        if self.bad_rows is None:
            raise RecipeError(text)
        self.bad_rows.refused.setdefault(number, text)

    def place(self, number: int) -> str:
        """Return where the row of this number, from 0, is."""
        return f"{self.where} {self.rows[number]}"

    def classes(self, values: Iterable[Any], name: str, marks: frozenset[str] = MISSING_MARKS) -> tuple[ClassName, ...]:
        """Return the distinct classes among the values of a column; see :func:`classes_of`.

        Raises:
            RecipeError: one of them is probably no class.
        """
        values = list(values)
        of_rows = len(values) == len(self.rows)
        for row, value in enumerate(values):
            if (reason := no_class(value)) is not None:
                raise RecipeError(f"{self.place(row) if of_rows else name}: {reason}")
        distinct = classes_of(values)
        doubt = doubtful_class(distinct, marks)
        if doubt is not None:
            wrong, problem = doubt
            place = f"{self.place(values.index(wrong))}: " if of_rows and wrong in values else ""
            raise RecipeError(f"{place}{name} {wrong!r} {problem}, or name all classes with classes=[...]")
        alike = {letters_of(one): one for one in distinct}
        for one in distinct:
            if (other := alike[letters_of(one)]) != one:
                _logger.warning("the classes %a and %a of %s differ only in case or look alike", one, other, name)
        if len(distinct) > max(20, len(values) // 2):
            _logger.warning(
                "%s has %d classes in %d values; is it a column of classes?", name, len(distinct), len(values)
            )
        return distinct

    def numbers(self, values: Sequence[Any], name: str) -> NDArray[np.float64]:
        """Return the numbers of a column, float64 ``[rows]``; NaN for a missing one.

        Raises:
            RecipeError: a value that is no finite number.
        """
        numbers = np.full(len(values), np.nan)
        for number, value in enumerate(values):
            if value is None or is_mark(value, among_numbers=True):
                continue
            try:
                numbers[number] = float(value)
            except (TypeError, ValueError, OverflowError):
                numbers[number] = math.inf
            if not math.isfinite(numbers[number]):
                self.refuse(number, f"{name} must be a finite number, not {shown(value)}")
                numbers[number] = math.nan
        return numbers


@dataclass
class TableRecords(RecordReader):
    """Reads trees out of a column.

    Args:
        tree: name of the column.
        text: how its texts describe trees.
        number: label of leaves that keep numbers as values, in texts and in nested data.
        target: names of the columns that follow in a text file without a header.

    Raises:
        RecipeError: the form of the texts is unknown.
    """

    tree: str
    text: TextForm = "brackets"
    number: str | None = None
    target: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.texts = TextReader(self.text, self.number, values=False)

    @property
    def text_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.tree, *self.target)

    @property
    def example_fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.tree,)

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        """Return the names of the columns if a text file's first line names that of the trees.

        Raises:
            ParseError: it seems to name the columns in another spelling.
        """
        if self.tree in parts and not any(part.startswith(("(", "[")) for part in parts):
            return parts
        spelled = {part.strip("\"'").lower() for part in parts}
        if len(parts) > 1 and spelled.issuperset(name.lower() for name in self.text_fields):
            raise ParseError(f"the header spells the columns {quoted(parts)}", expected=f"{quoted(self.text_fields)}")
        return None

    def fields_of_line(self, parts: Sequence[str]) -> Mapping[str, Any]:
        fields = super().fields_of_line(parts)
        self.check_order(fields)
        return fields

    def check_order(self, fields: Mapping[str, Any]) -> None:
        """Check that a text line without a header does not have the tree in the place of a target.

        Raises:
            ParseError: it seems so.
        """
        first, *others = (str(fields.get(name, "")).strip() for name in self.text_fields)
        if "(" not in first and any(part.startswith("(") and part.endswith(")") for part in others):
            columns = "<TAB>".join(self.text_fields)
            raise ParseError(
                f"the tree is {first!r:.50}, and there are brackets in another column",
                expected=f"{columns}, or a first line that names the columns in their order",
            )

    def parse(self, text: str) -> Tree:
        """Return the tree that a text describes.

        Raises:
            ParseError, GraphError, VocabularyError: it describes none.
        """
        return self.texts.parse(text)

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        cell = fields.get(self.tree)
        if is_missing(cell) or (isinstance(cell, str) and not cell.strip()):
            if self.tree in fields:
                raise ParseError(f"the field {self.tree!r} is empty")
            there = quoted(fields, most=20) or "(none)"
            near = near_names(self.tree, [*map(str, fields)])
            raise ParseError(f"no field {self.tree!r} among {there:.200}{near}")
        if isinstance(cell, str) and cell.strip() in _NO_TREES:
            raise ParseError(f"the field {self.tree!r} is {cell.strip()!r}, which stands for a missing value")
        return tree_nodes(self.parse(cell) if isinstance(cell, str) else self.tree_of(cell))

    def tree_of(self, example: object) -> Tree:
        return as_tree(example, number=self.number)


def other_columns(**names: Any) -> tuple[str, ...]:
    """Return the names of further columns that options name; None names none.

    Raises:
        RecipeError: an option is no name.
    """
    for option, name in names.items():
        if name is not None and not isinstance(name, str):
            raise RecipeError(f"{option} is the name of a column, not {shown(name)}; add the values to the table")
    return tuple(name for name in names.values() if name is not None)


def read_table(
    source: Any,
    reader: TableRecords,
    target: Sequence[str],
    format: str | None = None,
    *,
    others: Sequence[str] = (),
    for_training: bool = False,
    skip: bool = False,
) -> Table:
    """Return the rows of a file, whose format its name tells by default, of a DataFrame, or of mappings.

    Args:
        source: the table.
        reader: of its trees.
        target: the columns to predict.
        format: of a file.
        others: further columns to read; only a table for training must have them.
        for_training: whether the column of trees as a whole is checked, too.
        skip: leave out bad rows, whose errors are then in ``bad_rows``.

    Raises:
        RecipeError: the file does not exist, there is no row or no good one, or a column is missing; for training, the
            column of trees as a whole seems to be in another form.
        ParseError, GraphError, VocabularyError: a tree that cannot be read, with its row.
    """
    name, where = "", "row"
    rows: Iterable[tuple[Any, Mapping[str, Any] | TreememError]]
    is_file = isinstance(source, (str, os.PathLike))
    is_plain_text = False
    if is_file:
        name = f"{os.fspath(source)}, "
        where = f"{name}line"
        is_plain_text = format_of(os.fspath(source), format) in ("csv", "text")
        rows = _rows_of_file(source, reader, format, strict=not skip)
    elif is_data_frame(source):
        check_frame(source)
        rows = zip(source.index, source.to_dict("records"), strict=True)
    elif isinstance(source, Mapping):
        raise RecipeError(
            f"a table is a list of rows, not one dictionary with the fields {quoted(source)}; give "
            "pandas.DataFrame(dictionary) if these are its columns"
        )
    else:
        rows = enumerate(source, start=1)
    trees: list[list[Node]] = []
    splits: list[str] = []
    columns = (*target, *others)
    cells: list[list[Any]] = [[] for _ in columns]
    needed = (reader.tree, *(columns if for_training else target))
    lines: list[Any] = []
    unread: list[tuple[Any, str]] = []
    for line, fields in rows:
        if isinstance(fields, TreememError):
            unread.append((line, told_in_a_line(fields, line)))
            continue
        for column in needed:
            if not isinstance(fields, Mapping):
                raise RecipeError(f"{where} {line}: a row is a dictionary of its fields, not {shown(fields)}")
            if column not in fields and not trees:
                raise RecipeError(f"{name}no column {column!r}{_why_no_column(column, fields)}")
        try:
            tree, split = reader.read(dict(fields)), split_of(fields)
        except (ParseError, VocabularyError, GraphError) as error:
            if skip:
                unread.append((line, told_in_a_line(error, line) if is_file else in_one_line(in_row(line, error))))
                continue
            if isinstance(error, GraphError):
                raise GraphError(f"{where} {line}: {error}") from error
            raise (error.at(line, os.fspath(source)) if is_file else in_row(line, error)) from error
        trees.append(tree)
        splits.append(split)
        for column, values in zip(columns, cells, strict=True):
            values.append(plain_cell(fields.get(column)))
        lines.append(line)
    if not trees:
        first = f" that can be read: {unread[0][1]}" if unread else ""
        raise RecipeError(f"{name}there is no row{first}")
    forest = Forest.from_nodes(trees)
    if for_training:
        try:
            reader.texts.check_column(forest)
        except RecipeError as error:
            raise RecipeError(f"{name}column {reader.tree!r}: {error}") from error
    targets = [typed_column(values, is_plain_text) for values in cells[: len(target)]]
    read = {
        name: values
        for name, values in zip(others, cells[len(target) :], strict=True)
        if for_training or any(value is not None for value in values)
    }
    return Table(
        forest,
        targets,
        np.array(splits) if any(splits) else None,
        lines,
        where,
        read,
        BadRows(unread) if skip else None,
    )


def _rows_of_file(
    source: str | os.PathLike[str], reader: TableRecords, format: str | None, *, strict: bool
) -> Iterator[tuple[int, Mapping[str, Any] | TreememError]]:
    """Yield the lines of a file with their fields, or with their errors, if not ``strict``; empty rows are left out.

    Raises:
        ParseError: as ``read_records``; or a text file without a header whose columns are in another order, or whose
            first line seems to be a header of other names.
    """
    records = read_records(
        source,
        format=format,
        text_fields=reader.text_fields,
        header_of=reader.header_of,
        one_of=(reader.tree,),
        skip_blank_lines=True,
        strict=strict,
    )
    is_text = format_of(os.fspath(source), format) == "text" and reader.text != "json"
    first: Record | None = None
    names: set[str] = set()  # what the first line may name; empty if another line has one of these words
    is_alike = True
    for record in records:
        if record.error is not None:
            yield record.line, record.error
            continue
        values = [str(cell).strip() for cell in record.fields.values()]
        if is_text and (quoted_cell := next(filter(_IN_QUOTES.fullmatch, values), None)) is not None:
            problem = f"the cell {quoted_cell:.50} is in quotes, which a text file does not have"
            raise ParseError(
                problem, expected="cells without quotes, or CSV", line=record.line, source=os.fspath(source)
            )
        if record.by_place:
            try:
                reader.check_order(record.fields)
            except ParseError as error:
                raise error.at(record.line, os.fspath(source)) from error
            if first is None and len(values) > 1 and all(map(_NAME.fullmatch, values)):
                names = set(_WORD.findall(" ".join(values)))
            elif names:
                is_alike = is_alike and all(map(_NAME.fullmatch, values))
                names = names if names.isdisjoint(_WORD.findall(" ".join(values))) else set()
            first = first or record
        if any(plain_cell(cell) is not None for cell in record.fields.values()):
            yield record.line, record.fields
    if first is not None and names and not is_alike:
        problem = f"the line seems to be a header, and it does not name {quoted(reader.text_fields)}"
        text = "\t".join(first.fields.values())
        raise ParseError(problem, text, 0, "a first line that names these columns", first.line, os.fspath(source))


def _why_no_column(column: str, fields: Mapping[str, Any]) -> str:
    """Return what may be wrong if a column is missing: another spelling or another separator."""
    near = near_names(column, [*map(str, fields)])
    text = next(iter(fields.values()), None) if len(fields) == 1 else None
    if not near and isinstance(text, str) and column in re.split(r"[,;|]", text):
        return "; the file seems to be CSV or to have another separator than tabs; name it .csv (or format csv)"
    if not near and text is not None:
        return f"; its first row has one cell, {shown(text, 50)}. The columns of a text file are separated by tabs"
    return near or f"; there are {quoted(fields, most=20)}"
