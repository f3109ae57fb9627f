"""Pairs of formulas out of files: the published ones and a user's own."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, near_names
from treemem.records import read_records
from treemem.tasks.logical_inference.relations import RELATIONS, relations, truth_tables
from treemem.trees.bracketed_lines import forest_of_bracketed
from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR, parse_logic
from treemem.trees.source_text import shorten

MOST_OPERATIONS = 12
"""What numbers of operations are counted up to."""

_HEADER = ("n_ops", "label", "left", "right")
_EXPECTED = "LABEL<TAB>LEFT<TAB>RIGHT, before which a number of operations may stand"
_PUBLISHED_NAME = re.compile(r"(train|test)([0-9]+)?(\.tsv|\.txt)?(\.gz)?\Z")


@dataclass(frozen=True, eq=False)
class LogicPairs:
    """Pairs of formulas with their relations.

    Attributes:
        forest: the formulas, two a pair, adjacent, in the form ``"binary"``.
        label: index into ``RELATIONS``, int64 ``[pairs]``.
        operations: the larger of the two numbers of operators, int64 ``[pairs]``; 12 for 12 and more, as in the
            published files, whose last one has formulas of up to 19.
    """

    forest: Forest
    label: NDArray[np.int64]
    operations: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, chosen: NDArray[np.int64]) -> LogicPairs:
        """The pairs of these numbers, in their order."""
        formulas = (2 * chosen[:, None] + np.arange(2)).ravel()
        return LogicPairs(self.forest[formulas], self.label[chosen], self.operations[chosen])


def read_logic(path: str | os.PathLike[str]) -> LogicPairs:
    """Read a file of pairs: ``LABEL<TAB>LEFT<TAB>RIGHT``, or the same after a number of operations.

    A first line ``n_ops label left right`` or ``label left right`` is a header. Blank lines are skipped, and counted
    where lines are numbered. A name that ends in ``.gz`` is unpacked. Every relation is computed anew from the truth
    tables.

    Raises:
        ParseError: a line of another number of columns, a label that is no relation, a side that is no formula, a label
            or a number of operations that contradicts the formulas; with the line.
        RecipeError: there is no such file.
    """
    source = os.fspath(path)
    lines: list[int] = []
    labels: list[str] = []
    numbers: list[str | None] = []
    sides: list[str] = []
    for record in read_records(path, format="text", text_fields=_HEADER):
        parts = [part.strip() for part in record.fields.values()]
        if parts in ([""], []) or (not lines and parts in ([*_HEADER], [*_HEADER[1:]])):
            continue
        if len(parts) < 3:
            text = "\t".join(record.fields.values())
            problem = f"{len(parts)} column{'s' * (len(parts) != 1)}, and a pair has 3"
            raise ParseError(problem, text, 0, _EXPECTED, line=record.line, source=source)
        if len(parts) == 3 and parts[0].isdecimal() and parts[1] in RELATIONS:
            problem = "3 columns, a number of operations, a label and one side; the right side is missing"
            raise ParseError(problem, "\t".join(parts), 0, _EXPECTED, line=record.line, source=source)
        lines.append(record.line)
        numbers.append(parts[0] if len(parts) == 4 else None)
        labels.append(parts[-3])
        sides.extend(parts[-2:])
    label = _relation_numbers(labels, lines, source)
    forest, tables = _formulas(sides, lines, source)
    operations = pair_operations(forest)
    _check_numbers(numbers, operations, lines, source)
    found = relations(*tables.reshape(-1, 2).T)
    if (found != label).any():
        pair = int(np.argmax(found != label))
        said, is_so = RELATIONS[label[pair]], RELATIONS[found[pair]]
        raise ParseError(
            f"the label {said!r} contradicts the formulas, whose relation is {is_so!r}", line=lines[pair], source=source
        )
    return LogicPairs(forest, label, operations)


def read_logic_folder(folder: str | os.PathLike[str]) -> tuple[LogicPairs, NDArray[np.bool_]]:
    """Read the published files of a folder: ``train`` and ``test``, or ``train0``, ``train1``, ... and ``test0``, ...

    Each may end in ``.tsv`` or ``.txt``, and in ``.gz``, and stands there once: either the whole of its pairs in one
    file, or one file for each number.

    Returns:
        The pairs, those for training first, by number of operations; and which are for the test, bool ``[pairs]``.

    Raises:
        RecipeError: there is no such folder, no such files in it, or two that would give the same pairs.
        ParseError: as :func:`read_logic`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise RecipeError(f"there is no folder {folder}")
    found = [(match, path) for path in folder.iterdir() if (match := _PUBLISHED_NAME.match(path.name))]
    found.sort(key=lambda each: (each[0][1] == "test", int(each[0][2] or -1)))
    kinds = {match[1] for match, _ in found}
    if kinds != {"train", "test"}:
        raise RecipeError(f"{folder} must hold train.tsv and test.tsv, or train0, train1, ... and test0, test1, ...")
    _check_once([(match[1], int(match[2]) if match[2] else None, path.name) for match, path in found], folder)
    parts = [read_logic(path) for _, path in found]
    is_test = [np.full(len(part), match[1] == "test") for (match, _), part in zip(found, parts, strict=True)]
    return joined(parts), np.concatenate(is_test)


def _check_once(found: Sequence[tuple[str, int | None, str]], folder: Path) -> None:
    """Make sure that no pairs are read twice, as those for validation would then be among those for training.

    Args:
        found: of each file whether it is for ``"train"`` or ``"test"``, its number, and its name.
        folder: where they are.
    """
    for kind in ("train", "test"):
        names: dict[int | None, list[str]] = {}
        for its_kind, number, name in found:
            if its_kind == kind:
                names.setdefault(number, []).append(name)
        twice = [each for each in names.values() if len(each) > 1]
        if twice or (None in names and len(names) > 1):
            listed = ", ".join(sorted(twice[0] if twice else itertools.chain.from_iterable(names.values())))
            raise RecipeError(
                f"{folder} holds {listed}, which would be read one after the other; keep the pairs of {kind} once: in "
                f"one whole file such as {kind}.tsv, or in {kind}0, {kind}1, ..., one file for each number"
            )


def joined(parts: Sequence[LogicPairs]) -> LogicPairs:
    """All pairs, one part after the other."""
    return LogicPairs(
        Forest.concatenate(part.forest for part in parts),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.operations for part in parts]),
    )


def pair_operations(forest: Forest) -> NDArray[np.int64]:
    """The ``operations`` of pairs of formulas, int64 ``[pairs]``."""
    is_operator = np.array([label in (NOT, AND, OR) for label in forest.labels], bool)
    if not len(forest):
        return np.zeros(0, np.int64)
    of_formula = np.add.reduceat(is_operator[forest.label].astype(np.int64), forest.begin[:-1])
    return np.minimum(of_formula.reshape(-1, 2).max(1), MOST_OPERATIONS)


def _relation_numbers(labels: Sequence[str], lines: Sequence[int], source: str) -> NDArray[np.int64]:
    known = {name: place for place, name in enumerate(RELATIONS)}
    for line, label in zip(lines, labels, strict=True):
        if label not in known:
            problem = "the label is missing" if not label else f"{shorten(label)} is no relation"
            expected = f"one of {' '.join(RELATIONS)}{near_names(label, RELATIONS)}"
            raise ParseError(problem, label, 0, expected, line=line, source=source)
    return np.array([known[label] for label in labels], np.int64)


def _formulas(sides: Sequence[str], lines: Sequence[int], source: str) -> tuple[Forest, NDArray[np.uint64]]:
    """The sides as trees, and their truth tables."""
    line_of_side = [line for line in lines for _ in range(2)]
    forest = forest_of_bracketed(sides, source=source, lines=line_of_side, parse=parse_logic)
    try:
        return forest, truth_tables(forest)
    except GraphError:
        for line, side in zip(line_of_side, sides, strict=True):
            try:
                parse_logic(side)
            except ParseError as error:
                raise error.at(line, source) from error
        raise


def _check_numbers(
    numbers: Sequence[str | None], operations: NDArray[np.int64], lines: Sequence[int], source: str
) -> None:
    """Make sure that the numbers of operations that a file gives are those of its formulas."""
    for line, said, number in zip(lines, numbers, operations.tolist(), strict=True):
        if said is not None and said != str(number):
            problem = f"{shorten(said)} is said to be the number of operations, which is {number}"
            raise ParseError(problem, said, 0, _EXPECTED, line=line, source=source)
