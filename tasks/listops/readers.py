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
    chunk = _Chunk(os.fspath(source), labelled)
    parts = []
    for record in read_records(
        source,
        format=format,
        text_fields=_COLUMNS,
        header_of=_header_of,
        one_of=_NAMES["tree"],
        strict=False,
        skip_blank_lines=True,
    ):
        try:
            chunk.add(record)
        except ParseError as error:
            chunk.finish()  # a line before this one may be wrong too
            raise error.at(record.line, chunk.source) from error
        if len(chunk.texts) == _LINES_AT_ONCE:
            parts.append(chunk.finish())
    parts.append(chunk.finish())
    return LabelledExpressions(
        join([part.expressions for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.line for part in parts]),
        np.concatenate([part.split for part in parts]),
    )


def _header_of(parts: Sequence[str]) -> Sequence[str] | None:
    """Return the names of the columns if a text line is a header, in upper or lower case."""
    names = [_SPELLED.get(part.lower(), "") for part in parts]
    is_header = all(names) and len(names) > 1 and not set(names).isdisjoint(_NAMES["tree"])
    return names if is_header else None


class _Chunk:
    """Lines of a file that are parsed and evaluated together."""

    def __init__(self, source: str, labelled: bool) -> None:
        self.source = source
        self.labelled = labelled
        self.texts: list[str] = []
        self.labels: list[int] = []
        self.lines: list[int] = []
        self.splits: list[str] = []

    def add(self, record: Record) -> None:
        """Add a record."""
        if record.error is not None:
            raise record.error
        given = record.fields
        if record.by_place and len(given) == 1 and not self.labelled:
            given = {"tree": given["label"]}
        order = [column for name in given for column, names in _NAMES.items() if name in names]
        columns = "<TAB>".join(order if len(order) == len(_COLUMNS) else _COLUMNS)
        fields = {
            name: next((given[key] for key in names if given.get(key) is not None), None)
            for name, names in _NAMES.items()
        }
        if not self.labelled and (fields["label"] is None or not str(fields["label"]).strip()):
            fields["label"] = _NO_LABEL
        missing = [name for name in _COLUMNS if fields[name] is None]
        if missing:
            only = next(iter(given.values()), None)
            is_single = record.by_place and len(given) == 1
            problem = f"a single column, {shorten(str(only))}" if is_single else f"no {missing[0]}"
            raise ParseError(problem, expected=f"{columns}, or fields of these names")
        label, tree = number_text(fields["label"]), fields["tree"]
        if label not in (*DIGITS, *([] if self.labelled else [_NO_LABEL])):
            problem = f"the label is {fields['label']!r}" if label else "the label is missing"
            raise ParseError(problem, expected=f"a digit from 0 to 9, in {columns}")
        if not isinstance(tree, str):
            raise ParseError(f"the tree is {tree!r}", expected="a text such as [MAX 2 9 ]")
        self.splits.append(split_of(given))
        self.texts.append(tree)
        self.labels.append(int(label))
        self.lines.append(record.line)

    def finish(self) -> LabelledExpressions:
        """Return the expressions that were added since the last call."""
        try:
            expressions = expressions_of_lines(self.texts, source=self.source, lines=self.lines)
        except ParseError as error:
            before = self.lines.index(error.line)
            self._check_labels(expressions_of_lines(self.texts[:before]))  # one of these may be the first wrong line
            raise
        self._check_labels(expressions)
        label, line = np.array(self.labels, np.int8), np.array(self.lines, np.int64)
        split = np.array(self.splits, str)
        self.texts, self.labels, self.lines, self.splits = [], [], [], []
        return LabelledExpressions(expressions, label, line, split)

    def _check_labels(self, expressions: Expressions) -> None:
        value = values_of(expressions)
        label = np.array(self.labels[: len(value)], np.int64)
        differs = (label != value) & (label >= 0)
        if differs.any():
            wrong = int(np.argmax(differs))
            problem = f"the label is {label[wrong]}, and the expression comes to {value[wrong]}"
            expected = f"the label {value[wrong]}, or another expression"
            raise ParseError(problem, self.texts[wrong], 0, expected, self.lines[wrong], self.source)


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
