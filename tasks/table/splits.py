"""How the rows of a table are divided into training, validation and test."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from treemem.data_parallel import launched_processes
from treemem.errors import RecipeError, quoted, shortened, shown
from treemem.tasks.table.cells import class_key
from treemem.tasks.table.data import Table, TableDataOptions
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

_MOST_COUNTED = 20
"""Data cards count the rows of each class if there are at most so many classes."""

_logger = logging.getLogger(__name__)


def divided(
    table: Table,
    options: TableDataOptions,
    strata: Sequence[Hashable] | None = None,
    group: Sequence[Any] | None = None,
) -> tuple[NDArray[Any], str]:
    """Return the split of each row, that of the table or one that is drawn, and a text about the division.

    Rows stay together with those of their group and, with ``duplicates_together``, with those of their tree. These
    parts are drawn in random order, each with the same chance, so that rows that stay together are not drawn more
    often. A part with more rows than a split still takes goes to another split. So validation and test may have fewer
    rows than their shares. They have more only if they would have no row: then they take the smallest part. If there
    are too few different trees for that, and no groups, rows are drawn one by one, with a warning.

    Args:
        table: the rows.
        options: how to divide them.
        strata: of each row, what has the same shares in each split; for ``stratified``.
        group: a value for each row; rows of equal values stay in one split, except for None.

    Raises:
        RecipeError: a group of the table is in two of its splits; there are too few groups for all splits;
            ``stratified`` for a table that is divided, or without strata.
    """
    tree, count = numbers_of(tree_keys(table.forest)), len(table.forest)
    if table.split is not None:
        if options.stratified:
            raise RecipeError("data.stratified has no effect, since the table has a column 'split'; leave it out")
        _check_groups(table, group)
        return table.split, f"{_counts(table.split)}.\n{_repeated_trees(table.split, tree)}"
    if options.stratified and strata is None:
        raise RecipeError("data.stratified is for classes and labels; leave it out")
    together = [tree] if options.duplicates_together else []
    if group is not None:
        together.append(numbers_of([row if value is None else class_key(value) for row, value in enumerate(group)]))
    unit = _connected(together, count)
    stratum = numbers_of(strata) if options.stratified and strata is not None else np.zeros(count, np.int64)
    rows_of_stratum = np.bincount(stratum)
    rows_of_unit = np.split(np.argsort(unit, kind="stable"), np.cumsum(np.bincount(unit))[:-1])
    split = np.full(count, "train", "<U10")
    left = {  # validation counts from the last stratum, so that few rare ones lack both
        "test": _quotas(options.test, rows_of_stratum),
        "validation": _quotas(options.validation, rows_of_stratum[::-1])[::-1],
    }
    asked = {name: int(most.sum()) for name, most in left.items()}
    for number in np.random.default_rng(options.seed).permutation(len(rows_of_unit)):
        rows = rows_of_unit[number]
        needed = np.bincount(stratum[rows], minlength=len(rows_of_stratum))
        for name, most in left.items():
            if (needed <= most).all():
                split[rows], left[name] = name, most - needed
                break
    for name, rows_asked in asked.items():
        if not rows_asked or (split == name).any():
            continue
        of_training = [rows for rows in rows_of_unit if split[rows[0]] == "train"]
        if len(of_training) < 2 and options.duplicates_together and group is None:
            _logger.log(
                _level(), "too few different trees to keep equal ones in one split; rows are divided one by one"
            )
            split, about = divided(table, replace(options, duplicates_together=False), strata)
            return split, f"{about}Equal trees are in several splits, since there are too few different ones.\n"
        if len(of_training) < 2:
            assert group is not None
            raise RecipeError(
                f"no row is left for {name}, since {_why_too_few(together, len(rows_of_unit), len(asked))}; give the "
                "table a column 'split', or leave out group_column"
            )
        split[min(of_training, key=len)] = name
    return split, _about(split, asked, unit)


def _quotas(share: float, rows_of_stratum: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rows of each stratum a split takes: its share within one row, in total the share of all rows."""
    return np.diff(np.round(share * np.cumsum(rows_of_stratum)), prepend=0).astype(np.int64)


def _why_too_few(together: Sequence[NDArray[np.int64]], units: int, held_out: int) -> str:
    """Return why there are too few parts.

    Args:
        together: the number of the tree of each row, if equal trees stay together, and that of its group.
        units: the number of parts.
        held_out: the number of splits besides that of training.
    """
    groups = int(together[-1].max()) + 1
    if len(together) == 1 or groups <= held_out:
        return f"there are too few groups, {groups}"
    return (
        f"the {groups} groups have trees in common, which join them to {units}: give data.duplicates_together=false to "
        "keep groups together and not equal trees"
    )


def _counts(split: NDArray[Any]) -> str:
    """Return how many rows each split has."""
    train, validation, test = (int((split == name).sum()) for name in SPLITS)
    return f"{train} rows for training, {validation} for validation, {test} for test"


def _about(split: NDArray[Any], asked: dict[str, int], unit: NDArray[np.int64]) -> str:
    """Return how many rows there are in each split, and how many had to stay with others."""
    together = int((np.bincount(unit)[unit] > 1).sum())
    if not together:
        return f"{_counts(split)}.\n"
    is_as_asked = all((split == name).sum() == rows for name, rows in asked.items())
    wanted = "" if is_as_asked else f"; the shares are {asked['validation']} and {asked['test']}"
    return f"{_counts(split)}{wanted}. {together} rows stay with others of the same tree or group.\n"


def _check_groups(table: Table, group: Sequence[Any] | None) -> None:
    """Raise a RecipeError if a group is in two splits of the table."""
    first: dict[Any, int] = {}
    assert table.split is not None
    for row, value in enumerate(group or ()):
        other = row if value is None else first.setdefault(class_key(value), row)
        if table.split[other] != table.split[row]:
            raise RecipeError(
                f"{table.place(row)}: the group {shown(value)} is in the split {str(table.split[row])!r}, and in "
                f"{str(table.split[other])!r} at {table.place(other)}; put it in one split"
            )


def _level() -> int:
    """Return the level of warnings; of several processes only the first one warns."""
    return logging.WARNING if launched_processes().is_first else logging.DEBUG


def _repeated_trees(split: NDArray[Any], tree: NDArray[np.int64]) -> str:
    """Return how many rows for validation and test have the tree of a training row, and warn of them."""
    is_known = np.isin(tree, tree[split == "train"]) & (split != "train")
    if not is_known.any():
        return ""
    counts = ", ".join(f"{(is_known & (split == name)).sum()} for {name}" for name in SPLITS[1:])
    _logger.log(_level(), "rows with the tree of a training row: %s; their scores tell nothing of new trees", counts)
    return f"Rows with the tree of a training row: {counts}.\n"


def _connected(parts: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """Return the number of the unit of each row: rows that are equal in one of ``parts`` are of one unit."""
    if not parts:
        return np.arange(count)
    rows = np.tile(np.arange(count), len(parts))
    shift = np.repeat(count * np.arange(1, len(parts) + 1), count)
    size = count * (len(parts) + 1)
    edges = coo_array((np.ones(len(rows), bool), (rows, np.concatenate(parts) + shift)), (size, size))
    return numbers_of(connected_components(edges, directed=False)[1][:count].tolist())


def numbers_of(values: Iterable[Hashable]) -> NDArray[np.int64]:
    """Return a number for each value, the same for equal ones, counted from 0 in the order of their first places."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)


def tree_keys(forest: Forest) -> list[bytes]:
    """Return a key for each tree, equal for equal trees."""
    arrays: list[NDArray[Any]] = [forest.label, forest.arity, *([] if forest.value is None else [forest.value])]
    begin = forest.begin.tolist()
    return [b"".join(array[first:last].tobytes() for array in arrays) for first, last in pairwise(begin)]


def warn_of_rare_labels(forest: Forest, split: NDArray[Any]) -> None:
    """Warn of labels that occur in one row, and of those that no training row has.

    Args:
        forest: the trees of the rows.
        split: of each row.
    """
    row = np.repeat(np.arange(len(forest)), np.diff(forest.begin))
    pairs = np.unique(np.stack([forest.label, row]), axis=1)
    rows_of_label = np.bincount(pairs[0], minlength=len(forest.labels))
    of_training = np.bincount(pairs[0][split[pairs[1]] == "train"], minlength=len(forest.labels))
    once, unseen = np.flatnonzero(rows_of_label == 1), np.flatnonzero((rows_of_label > 0) & (of_training == 0))
    if len(once):
        _logger.log(
            _level(),
            "%d of %d labels occur in one row, such as %s%s",
            len(once),
            (rows_of_label > 0).sum(),
            quoted(forest.labels[number] for number in once[:3].tolist()),
            f"; {len(unseen)} labels occur in no training row, so that their vectors are not trained, and predictions "
            "for trees with them are not to be trusted"
            if len(unseen)
            else "",
        )


def rows_by_name(names: Sequence[object], has: NDArray[np.bool_], split: NDArray[Any], kind: str) -> str:
    """Return how many rows of each split have each class or label, and warn of those that a split does not have.

    Args:
        names: of the classes or labels.
        has: whether a row has one, bool ``[rows, names]``.
        split: of each row.
        kind: ``"class"`` or ``"label"``.
    """
    counts = {name: has[split == name].sum(0) for name in SPLITS if (split == name).any()}
    for name, of_names in counts.items():
        if missing := [names[place] for place in np.flatnonzero(of_names == 0).tolist()]:
            _logger.log(
                _level(),
                "no row for %s has the %s %s: %s",
                "training" if name == SPLITS[0] else name,
                kind,
                quoted(missing),
                "it cannot be learned" if name == SPLITS[0] else "scores say nothing about it",
            )
    if len(names) > _MOST_COUNTED:
        return ""
    lines = [
        f"{shortened(str(name), 100)}: {', '.join(f'{rows[place]} {of_split}' for of_split, rows in counts.items())}\n"
        for place, name in enumerate(names)
    ]
    return f"Rows of each {kind}:\n{''.join(lines)}"
