"""Read labelled ListOps expressions from files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_choice
from treemem.data.examples import without_empty
from treemem.errors import ParseError
from treemem.records import Record, read_records
from treemem.tasks.listops.generation.evaluation import values_of
from treemem.trees.forest import Forest
from treemem.trees.formats.listops import DIGITS, ListOpsForm, parse_listops
from treemem.trees.formats.listops_arrays import Expressions, expressions_of_lines, join
from treemem.trees.formats.record_reader import RecordReader, number_text, split_of, text_of
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Node, tree_nodes

_COLUMNS = ("label", "tree")
_NAMES = {"label": ("label", "Target"), "tree": ("tree", "expression", "Source")}  # of fields; the first there counts
_SPELLED = {name.lower(): name for names in (*_NAMES.values(), ("id", "split")) for name in names}
_LINES_AT_ONCE = 8192
_NO_LABEL = "-1"


class LabelledExpressions(NamedTuple):
    """The expressions of a file.

    Attributes:
        expressions: in the order of the file.
        label: int8 ``[expressions]``, the value of each; -1 if the file does not have it.
        line: int64 ``[expressions]``, its line in the file.
        split: the field ``split`` of each record, ``[expressions]``; empty without one.
    """

    expressions: Expressions
    label: NDArray[np.int8]
    line: NDArray[np.int64]
    split: NDArray[np.str_]


def read_listops(
    source: str | os.PathLike[str],
    form: ListOpsForm = "binary",
    *,
    format: str | None = None,
    labelled: bool = True,
) -> Forest:
    """Read a file of labelled expressions.

    A text line is ``label<TAB>expression``, as published, or ``expression<TAB>label`` below the header
    ``Source<TAB>Target`` (Tay et al. 2021). A header of ``label`` and ``tree`` or ``expression`` names the columns too.
    Expressions are plain or in binary brackets. CSV, JSONL and Parquet have the fields ``label`` or ``Target``, and
    ``tree``, ``expression`` or ``Source``. Blank lines are skipped. Every label is checked.

    Args:
        source: a path, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
        form: of the trees; see :func:`~treemem.trees.formats.listops.parse_listops`.
        format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default.
        labelled: every expression must have a label. If False, a line may be the expression alone, with label -1.

    Returns:
        The trees in the order of the file, with ``tree_data["label"]``, ``tree_data["line"]`` and, if a record has a
        field ``split``, ``tree_data["split"]``.

    Raises:
        RecipeError: there is no such file, or its format or ``form`` is unknown.
        ParseError: the first line without two columns, a digit or an expression, or whose label is not the value of
            its expression.
    """
    checked_choice("form", form, get_args(ListOpsForm))
    expressions, label, line, split = read_expressions(source, format=format, labelled=labelled)
    forest = expressions.forest(form).with_data(tree_data={"label": label, "line": line, "split": split})
    return without_empty(forest, "split")


def read_expressions(
    source: str | os.PathLike[str], *, format: str | None = None, labelled: bool = True
) -> LabelledExpressions:
    """Return what :func:`read_listops` returns, without trees."""
    name = os.fspath(source)
    rows: list[_Row] = []
    parts: list[LabelledExpressions] = []
    try:
        for record in read_records(
            source,
            format=format,
            text_fields=_COLUMNS,
            header_of=_header_of,
            one_of=_NAMES["tree"],
            skip_blank_lines=True,
        ):
            if len(rows) == _LINES_AT_ONCE:
                parts.append(_evaluated(rows, name))
                rows = []
            try:
                rows.append(_row_of(record, labelled))
            except ParseError as error:
                raise error.at(record.line, name) from error
    except ParseError:
        _evaluated(rows, name)  # a line before this one may be wrong too
        raise
    parts.append(_evaluated(rows, name))
    expressions, *columns = zip(*parts, strict=True)
    return LabelledExpressions(join(expressions), *map(np.concatenate, columns))


def _header_of(parts: Sequence[str]) -> Sequence[str] | None:
    """Return the names of the columns if a text line is a header, in upper or lower case."""
    names = [_SPELLED.get(part.lower(), "") for part in parts]
    is_header = all(names) and len(names) > 1 and not set(names).isdisjoint(_NAMES["tree"])
    return names if is_header else None


class _Row(NamedTuple):
    """A line of a file."""

    text: str
    label: int
    line: int
    split: str


def _row_of(record: Record, labelled: bool) -> _Row:
    given = record.fields
    if record.by_place and len(given) == 1 and not labelled:
        given = {"tree": given["label"]}
    order = [column for name in given for column, names in _NAMES.items() if name in names]
    columns = "<TAB>".join(order if len(order) == len(_COLUMNS) else _COLUMNS)
    fields = {
        name: next((given[key] for key in names if given.get(key) is not None), None) for name, names in _NAMES.items()
    }
    if not labelled and (fields["label"] is None or not str(fields["label"]).strip()):
        fields["label"] = _NO_LABEL
    missing = [name for name in _COLUMNS if fields[name] is None]
    if missing:
        only = next(iter(given.values()), None)
        is_single = record.by_place and len(given) == 1
        problem = f"a single column, {shorten(str(only))}" if is_single else f"no {missing[0]}"
        raise ParseError(problem, expected=f"{columns}, or fields of these names")
    label, tree = number_text(fields["label"]), fields["tree"]
    if label not in (*DIGITS, *([] if labelled else [_NO_LABEL])):
        problem = f"the label is {fields['label']!r}" if label else "the label is missing"
        raise ParseError(problem, expected=f"a digit from 0 to 9, in {columns}")
    if not isinstance(tree, str):
        raise ParseError(f"the tree is {tree!r}", expected="a text such as [MAX 2 9 ]")
    return _Row(tree, int(label), record.line, split_of(given))


def _evaluated(rows: Sequence[_Row], source: str) -> LabelledExpressions:
    """Return the expressions of some lines, after comparing their values with their labels."""
    texts, labels, lines, splits = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 4
    try:
        expressions = expressions_of_lines(texts, source=source, lines=lines)
    except ParseError as error:
        before = lines.index(error.line)
        _check_labels(rows, expressions_of_lines(texts[:before]), source)  # one of these may be the first wrong line
        raise
    _check_labels(rows, expressions, source)
    return LabelledExpressions(expressions, np.array(labels, np.int8), np.array(lines, np.int64), np.array(splits, str))


def _check_labels(rows: Sequence[_Row], expressions: Expressions, source: str) -> None:
    value = values_of(expressions)
    label = np.array([row.label for row in rows[: len(value)]], np.int64)
    differs = (label != value) & (label >= 0)
    if differs.any():
        wrong = int(np.argmax(differs))
        problem = f"the label is {label[wrong]}, and the expression comes to {value[wrong]}"
        expected = f"the label {value[wrong]}, or another expression"
        raise ParseError(problem, rows[wrong].text, 0, expected, rows[wrong].line, source)


@dataclass
class ListOpsRecords(RecordReader):
    """Reads expressions from records, with or without labels.

    A text line is an expression, or an expression and its label in either order. Records have the field ``tree``,
    ``expression`` or ``Source``.

    Args:
        form: of the trees.
    """

    text_fields: ClassVar[tuple[str, ...]] = _COLUMNS
    example_fields: ClassVar[tuple[str, ...]] = _NAMES["tree"]

    form: ListOpsForm = "binary"

    def header_of(self, parts: Sequence[str]) -> Sequence[str] | None:
        return _header_of(parts)

    def fields_of_line(self, parts: Sequence[str]) -> dict[str, str]:
        """Return the expression: of two parts, the one that is not a label."""
        is_label = [number_text(part) in (*DIGITS, "") for part in parts]
        if len(parts) == 2 and not any(is_label):
            raise ParseError("two columns, and neither is a label", expected="an expression, or a label beside it")
        return {"tree": parts[0] if len(parts) == 1 or (is_label[1] and not is_label[0]) else parts[1]}

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(parse_listops(text_of(fields, self.example_fields), self.form))
