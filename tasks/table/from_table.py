"""The task of a table: which kind it is of."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from treemem.errors import RecipeError, shown
from treemem.tasks.table.data import BadRows, Table, TableRecords, other_columns, read_table
from treemem.tasks.table.labels import TableLabels
from treemem.tasks.table.nodes import TableNodes
from treemem.tasks.table.regression import TableRegression
from treemem.tasks.table.task import TableClasses, TableTask

_LIKE_NUMBER = re.compile(r"[-+\u2212]?[$\u20ac\u00a3]?\s?[0-9]+([,.\s'\u2019_][0-9]+)*\s?[%$\u20ac\u00a3]?")
_MOST_CLASSES, _MOST_OF_ROWS = 20, 0.1
"""Whole numbers are classes if there are at most so many different ones, or so many of the rows."""

_logger = logging.getLogger(__name__)


def task_from_table(
    source: Any, *, tree: str, target: str | Sequence[str], kind: str | None = None, **options: Any
) -> TableTask:
    """Return the task of predicting columns of a table from its trees.

    Args:
        source: a file in CSV, JSONL, Parquet or text, a DataFrame, or a list of dictionaries.
        tree: the column of the trees: texts, or nested data (:func:`~treemem.trees.as_tree`).
        target: the column to predict, or several.
        kind: ``"classes"``, ``"regression"``, ``"labels"`` or ``"nodes"``. By default a column of lists,
            or of texts that are lists in JSON, holds classes of nodes; several columns of 0 and 1 are labels; other
            numbers, if they have decimals or several columns, are for regression; anything else is a class, unless it
            has more than 20 different whole numbers, and these are more than a tenth of the rows.
        options: of the task; see :class:`TableTask`.

    Raises:
        RecipeError: a missing file or column, targets that do not suit the kind, or that may be of two kinds.
        ParseError, GraphError, VocabularyError: a tree that cannot be read, with its row.

    Example:
        >>> rows = [{"expr": "(f x y)", "size": 3.5}, {"expr": "x", "size": 1.0}]
        >>> task_from_table(rows, tree="expr", target="size").name
        'table_regression'
    """
    target = (target,) if isinstance(target, str) else tuple(target) if isinstance(target, Iterable) else (target,)
    for name in (tree, *target):
        if not isinstance(name, str):
            raise RecipeError(f"a column has a text as its name, not {shown(name)}; rename it: frame.columns = [...]")
    reader = TableRecords(tree, options.get("text", "brackets"), options.get("number"), target)
    others = other_columns(weight=options.get("weight"), group_column=options.get("group_column"))
    table = read_table(source, reader, target, others=others, for_training=True, skip=options.get("on_error") == "skip")
    if kind is None:
        kind = _kind_of(table)
        _logger.info("%s read as %s; kind= names another kind", ", ".join(target), kind)
    classes: dict[str, type[TableTask]] = {
        "classes": TableClasses,
        "regression": TableRegression,
        "labels": TableLabels,
        "nodes": TableNodes,
    }
    if kind not in classes:
        raise RecipeError(f"kind must be one of {', '.join(classes)}, not {kind!r}")
    return classes[kind](tree=tree, target=target, table=table, **options)


def _kind_of(table: Table) -> str:
    targets = table.targets
    if any(_is_list(value) for value in targets[0]):
        return "nodes"
    try:
        trial = table._replace(bad_rows=table.bad_rows and BadRows())  # names of classes are no bad numbers
        numbers = np.stack([trial.numbers(values, "the target") for values in targets])
    except RecipeError as error:
        cells = [value for values in targets for value in values if value is not None]
        if any(isinstance(value, float) or _has_decimals(value) for value in cells):
            raise RecipeError(f'{error}; if the cells are names, give kind="classes"') from error
        texts = [value for value in cells if isinstance(value, str)]
        odd = [text for text in texts if not text.removeprefix("-").isdecimal()]
        if odd and all(_LIKE_NUMBER.fullmatch(text) for text in texts):
            problem = f"{odd[0]!r:.50} seems to be a number in another spelling; write it as in -1234.5"
            raise RecipeError(f'{problem}, or give kind="classes" if the cells are names') from error
        if texts and all(text.startswith("[") and text.endswith("]") for text in texts):
            problem = f'{texts[0]!r:.50} seems to be a list and is not JSON, such as ["a", "b"]; write JSON'
            raise RecipeError(f'{problem}, or give kind="classes" if the cells are names') from error
        return "classes"
    known = numbers[~np.isnan(numbers)]
    if len(targets) > 1:
        return "labels" if np.isin(known, (0, 1)).all() else "regression"
    if (known != known.round()).any():
        return "regression"
    distinct = len(np.unique(known))
    if distinct > _MOST_CLASSES and distinct > _MOST_OF_ROWS * len(known):
        raise RecipeError(
            f"the target has {distinct} whole numbers in {len(known)} rows, which may be numbers or names of classes; "
            'give kind="regression" to predict a number, or kind="classes" to tell these values apart'
        )
    return "classes"


def _is_list(value: Any) -> bool:
    """Return whether a cell is a list, or a text that is a list in JSON."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return isinstance(value, (list, tuple, np.ndarray))
    try:
        return isinstance(json.loads(value), list)
    except (ValueError, RecursionError):
        return False


def _has_decimals(value: Any) -> bool:
    try:
        return isinstance(value, str) and not float(value).is_integer()
    except ValueError:
        return False
