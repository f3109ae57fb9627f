"""Read equations with blanks from files, or draw the blanks."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from treemem.errors import GraphError, RecipeError
from treemem.runs.state import data_digest
from treemem.tasks.equation_verification import EquationVerification, read_equations
from treemem.tasks.equation_verification.completion.blanks import Blanks, draw_blanks, place_blanks
from treemem.tasks.equation_verification.completion.candidates import Candidates
from treemem.trees.forest import Forest
from treemem.trees.preorder import parse_preorder

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
        """Return ``count`` of them, spread evenly over all, or all if there are no more."""
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
    """Return the true equations, each with a blank drawn by :func:`draw_blanks`; ids are numbers of trees."""
    blanks = draw_blanks(equations, candidates, seed=seed)
    return _kept(equations, blanks, blanks.tree.tolist())


def blanked_test(equations: Forest, candidates: Candidates, *, seed: int = 0) -> BlankedEquations:
    """Return the true test equations of a generated data set with drawn blanks; ids are numbers of its equations."""
    chosen = np.flatnonzero((equations.tree_data["split"] == "test") & (equations.tree_data["label"] == 1))
    found = blank_out(equations[chosen], candidates, seed=seed)
    return replace(found, ids=chosen[found.ids].tolist())


def read_blanked(source: str | os.PathLike[str], candidates: Candidates, *, seed: int = 0) -> BlankedEquations:
    """Read true equations and their blanks.

    :func:`treemem.tasks.equation_verification.read_equations` reads the file, with the published names of variables.
    The field ``blank_node`` gives the blank, as a place in the preorder of the equation, whose root is 0. The published
    format gives ``blankNodeNum``, one of the numbers in ``nodeNum``. If no record has a blank, blanks are drawn. Bad
    records, false equations, blank roots and, in the published format, equations with decimal numbers are left out; the
    log says how many.

    Args:
        source: a path.
        candidates: what may be blank.
        seed: of drawn blanks.

    Raises:
        RecipeError: the file does not exist, no true equation can have a blank, or the seed is not an integer from 0.
        ParseError: the file as a whole is damaged.
        GraphError: a blank is not a candidate or not in its equation; names the record.
    """
    name = os.fspath(source)
    file = read_equations(source, variables="indexed", keep=["blank_node", "preorder"])
    if not len(file.forest):
        raise RecipeError(f"there are no equations in {name}")
    label, given, preorder = (file.forest.tree_data[column] for column in ("label", "blank_node", "preorder"))
    forest = file.forest.with_data(tree_data={"label": label})
    names = [f"{name}, record {identity!r}" for identity in file.ids]
    for record, blank in zip(names, given.tolist(), strict=True):
        if blank and not (blank.isdecimal() and len(blank) <= _LONGEST_PLACE):
            raise GraphError(f"{record}: blank_node is {blank!r:.100}; it must be a place, from 0")
    place = np.array([int(blank or -1) for blank in given.tolist()])
    if (place < 0).all():
        blanks = draw_blanks(forest, candidates, seed=seed)
    else:
        usable = np.flatnonzero((place > 0) & (label != 0))
        spelled = Forest.from_trees(
            parse_preorder(text, unify=False) if text and parse_preorder(text) == tree else tree
            for tree, text in zip(forest, preorder.tolist(), strict=True)
        )
        blanks = place_blanks(forest, candidates, place[usable], usable, spelled, names)
    if not len(blanks):
        raise RecipeError(f"no equation of {name} is true and has a blank beside its root")
    if len(blanks) < len(forest):
        left_out = len(forest) - len(blanks)
        _logger.info("%s: %d of %d equations left out: false, or without a blank", name, left_out, len(forest))
    return _kept(forest, blanks, [file.ids[tree] for tree in blanks.tree.tolist()])


def _kept(forest: Forest, blanks: Blanks, ids: list[Any]) -> BlankedEquations:
    """Return the equations that have blanks."""
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(forest.begin)[blanks.tree])])
    node = blanks.node - forest.begin[blanks.tree] + begin[:-1]
    return BlankedEquations(forest[blanks.tree], Blanks(np.arange(len(blanks)), node, blanks.original), ids)
