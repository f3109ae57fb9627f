"""Equations with blanks out of files: with the published blanks where the file has them, else with drawn ones."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from treemem.errors import GraphError, RecipeError, TreememError
from treemem.runs.state import data_digest
from treemem.tasks.equation_verification import EquationVerification, read_equations
from treemem.tasks.equation_verification.completion.blanks import (
    Blanks,
    draw_blanks,
    place_blanks,
)
from treemem.tasks.equation_verification.completion.candidates import Candidates
from treemem.tasks.equation_verification.readers import MISSING, has_numbers, published_tree, read_published_records
from treemem.trees.forest import Forest
from treemem.trees.preorder import parse_preorder
from treemem.trees.tree import Tree

_logger = logging.getLogger(__name__)
_LONGEST_PLACE = 9  # digits; no equation has so many nodes


@dataclass(frozen=True, eq=False)
class BlankedEquations:
    """True equations, each with a blank.

    Attributes:
        forest: the equations, whole.
        blanks: where they are blank, one each, in the order of ``forest``.
        ids: of the equations.
    """

    forest: Forest
    blanks: Blanks
    ids: list[Any]

    def __len__(self) -> int:
        return len(self.blanks)

    def spread(self, count: int) -> BlankedEquations:
        """``count`` of them, spread evenly over all, or all if there are no more."""
        chosen = np.arange(count) * len(self) // count if count < len(self) else np.arange(len(self))
        return _kept(self.forest, self.blanks[chosen], [self.ids[tree] for tree in chosen.tolist()])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the equations and their blanks, in hexadecimal."""
        content = hashlib.sha256(data_digest(EquationVerification().examples(self.forest)).encode())
        for array in (self.blanks.node, self.blanks.original):
            content.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return content.hexdigest()


def blank_out(equations: Forest, candidates: Candidates, *, seed: int = 0) -> BlankedEquations:
    """The true ones of some equations, each with a blank drawn by :func:`draw_blanks`; ids are numbers of trees."""
    blanks = draw_blanks(equations, candidates, seed=seed)
    return _kept(equations, blanks, blanks.tree.tolist())


def blanked_test(equations: Forest, candidates: Candidates, *, seed: int = 0) -> BlankedEquations:
    """The true test equations of a generated data set, each with a drawn blank; ids are numbers of its equations."""
    chosen = np.flatnonzero((equations.tree_data["split"] == "test") & (equations.tree_data["label"] == 1))
    found = blank_out(equations[chosen], candidates, seed=seed)
    return replace(found, ids=chosen[found.ids].tolist())


def read_blanked(source: str | os.PathLike[str], candidates: Candidates, *, seed: int = 0) -> BlankedEquations:
    """Read true equations and their blanks.

    A file is read as :func:`treemem.tasks.equation_verification.read_equations` does, with the published names of
    variables. A field ``blank_node`` says which node is blank, as a place in the preorder of the equation, whose root
    is 0; in a file in the published format ``blankNodeNum`` does, as one of the numbers in ``nodeNum``. Where no record
    has it, blanks are drawn. Records that are no equations, false equations, blank roots and, in the published format,
    equations with decimal numbers are left out, and the log says how many. Elsewhere decimal numbers are composed, as
    :func:`treemem.trees.parse_equation` does.

    Args:
        source: a path.
        candidates: what may be blank.
        seed: of drawn blanks.

    Raises:
        RecipeError: there is no such file, no true equation that can have a blank, or a seed that is no whole number
            from 0.
        ParseError: the file as a whole is damaged.
        GraphError: a blank that is none of the candidates, or lies outside of its equation; says which record's.
    """
    name = os.fspath(source)
    published = name.lower().removesuffix(".gz").endswith(".json")
    rows = list(_published_rows(source) if published else _rows(source))
    if not rows:
        raise RecipeError(f"there are no equations in {name}")
    forest = Forest.from_trees([row.tree for row in rows], tree_data={"label": [row.label for row in rows]})
    place = np.array([-1 if row.place is None else row.place for row in rows])
    if (place < 0).all():
        blanks = draw_blanks(forest, candidates, seed=seed)
    else:
        usable = np.flatnonzero((place > 0) & (forest.tree_data["label"] != 0))
        spelled = Forest.from_trees([row.spelled for row in rows])
        blanks = place_blanks(forest, candidates, place[usable], usable, spelled, [row.name for row in rows])
    if not len(blanks):
        raise RecipeError(f"no equation of {name} is true and has a blank beside its root")
    if len(blanks) < len(rows):
        _logger.info(
            "%s: %d of %d equations left out: false, or without a blank", name, len(rows) - len(blanks), len(rows)
        )
    return _kept(forest, blanks, [rows[tree].id for tree in blanks.tree.tolist()])


class _Row(NamedTuple):
    """An equation of a file.

    Attributes:
        id: what its ``id`` field says, else where it stands.
        name: the file, and which record it is, for errors.
        tree: the equation.
        spelled: the same tree, with its leaves as they were spelled.
        label: 1 for true, 0 for false, -1 for not said.
        place: of the blank, in preorder; None where the file does not say.
    """

    id: Any
    name: str
    tree: Tree
    spelled: Tree
    label: int
    place: int | None


def _rows(source: str | os.PathLike[str]) -> Iterator[_Row]:
    file = read_equations(source, variables="indexed", keep=["blank_node", "preorder"])
    columns = (file.forest.tree_data[name].tolist() for name in ("label", "blank_node", "preorder"))
    for identity, tree, label, blank, text in zip(file.ids, file.forest, *columns, strict=True):
        name = f"{os.fspath(source)}, record {identity!r}"
        if blank and not (blank.isdecimal() and len(blank) <= _LONGEST_PLACE):
            raise GraphError(f"{name}: blank_node is {blank!r:.100}; it must be a place, from 0")
        spelled = parse_preorder(text, unify=False) if text and parse_preorder(text) == tree else tree
        yield _Row(identity, name, tree, spelled, label, int(blank) if blank else None)


def _published_rows(source: str | os.PathLike[str]) -> Iterator[_Row]:
    bad: list[str] = []
    total = numeric = 0
    for place, record in read_published_records(source):
        total += 1
        name = f"{os.fspath(source)}, {place}"
        try:
            tree, label = published_tree(record)
        except TreememError as error:
            bad.append(f"{name}: {error}")
            continue
        if has_numbers(tree):
            numeric += 1
            continue
        yield _Row(place, name, tree, _spelled(record), label, _published_place(record, name))
    if bad:
        _logger.warning("%s: %d of %d records are no equations; first %s", os.fspath(source), len(bad), total, bad[0])
    if numeric:
        _logger.info("%s: %d numeric equations left out", os.fspath(source), numeric)


def _spelled(record: Mapping[str, Any]) -> Tree:
    """The equation of a record that is known to have one, its leaves as they are spelled."""
    entries = zip(*(record["equation"][name].split(",") for name in ("func", "vars")), strict=True)
    words = [
        f"{function}:{variable}" if variable else function for function, variable in entries if function != MISSING
    ]
    return parse_preorder(" ".join(words), unify=False)


def _published_place(record: Mapping[str, Any], where: str) -> int | None:
    """The place of a record's blank in preorder, looked up by its number; None where it has none.

    Raises:
        GraphError: no node has this number.
    """
    blank, numbers = record.get("blankNodeNum"), record["equation"].get("nodeNum")
    if blank is None:
        return None
    known = [number for number in str(numbers).split(",") if number != MISSING]
    if str(blank) not in known:
        raise GraphError(f"{where}: no node has the blank's number {blank!r}; nodeNum is {numbers!r:.100}")
    return known.index(str(blank))


def _kept(forest: Forest, blanks: Blanks, ids: list[Any]) -> BlankedEquations:
    """The equations that have blanks, without the others."""
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(forest.begin)[blanks.tree])])
    node = blanks.node - forest.begin[blanks.tree] + begin[:-1]
    return BlankedEquations(forest[blanks.tree], Blanks(np.arange(len(blanks)), node, blanks.original), ids)
