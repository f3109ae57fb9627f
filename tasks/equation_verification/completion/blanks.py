"""Blanks of equations, one node each whose subtree is a candidate: drawn, or read from files."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError, shown
from treemem.schedule import SubtreeIndex
from treemem.tasks.equation_verification import EquationVerification, read_equations
from treemem.tasks.equation_verification.completion.candidates import Candidates
from treemem.trees.forest import Forest
from treemem.trees.forest_arrays import checked_integers
from treemem.trees.formats.equations.labels import NUMBER
from treemem.trees.formats.preorder import parse_preorder
from treemem.trees.vocabulary import Vocabulary

_logger = logging.getLogger(__name__)
_LONGEST_PLACE = 9  # digits; no equation has so many nodes


@dataclass(frozen=True, eq=False)
class Blanks:
    """One node of each of some equations, to be filled in.

    Attributes:
        tree: int64 ``[blanks]``, number of the equation in a forest.
        node: int64 ``[blanks]``, number of the node in the post-order of the forest; not a root.
        original: int64 ``[blanks]``, the candidate that the equation has there; -1 if it is not a candidate.
    """

    tree: NDArray[np.int64]
    node: NDArray[np.int64]
    original: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tree)

    def __getitem__(self, chosen: slice | NDArray[Any]) -> Blanks:
        return Blanks(self.tree[chosen], self.node[chosen], self.original[chosen])


def draw_blanks(equations: Forest, candidates: Candidates, *, seed: int = 0) -> Blanks:
    """Draw a blank in each true equation, as in the published data.

    All nodes whose subtrees are candidates are equally probable, except the root. (1,040 published blanks differ from
    this by a chi-squared of 16.6 over 17 labels.) Equations with decimal numbers or without such a node get no blank.
    A blank depends only on its own equation and on the number of equations before it.

    Args:
        equations: trees with root ``Equality``, as readers return them; false ones, ``tree_data["label"]`` 0, get no
            blank.
        candidates: what may be blank. Of candidates that networks read alike, the first is the original.
        seed: of the choice.

    Raises:
        GraphError: a tree is not an equation.
        RecipeError: no equation can have a blank, or the seed is not an integer from 0.
    """
    seed = checked_count("seed", seed, least=0)
    candidate = _candidate_of_nodes(equations, candidates)
    tree_of_node = np.repeat(np.arange(len(equations)), np.diff(equations.begin))
    possible = (candidate >= 0) & ~_left_out(equations)[tree_of_node]
    possible[equations.begin[1:] - 1] = False
    count = np.bincount(tree_of_node[possible], minlength=len(equations))
    draw = np.random.default_rng(seed).random(len(equations))
    tree = np.flatnonzero(count)
    if not len(tree):
        raise RecipeError(
            f"none of the {len(equations)} equations can have a blank; give true ones without decimal numbers that "
            "contain a candidate"
        )
    place = np.cumsum(count)[tree] - count[tree] + (draw[tree] * count[tree]).astype(np.int64)
    node = np.flatnonzero(possible)[place]
    return Blanks(tree, node, candidate[node])


def place_blanks(
    equations: Forest,
    candidates: Candidates,
    preorder: ArrayLike,
    spelled: Forest | None = None,
    names: Sequence[str] | None = None,
) -> Blanks:
    """Return a blank at a given node of each equation.

    Args:
        equations: trees with root ``Equality``, as readers return them.
        candidates: what may be blank.
        preorder: ``[trees]``, the place of each blank in the preorder of its equation, whose root is 0.
        spelled: the same trees with leaves as spelled (``One:1`` apart from ``Integer:1``), to find the original among
            candidates that networks read alike. By default the first of those is the original.
        names: name of each equation, for errors; by default ``"equation 3"``.

    Raises:
        GraphError: a tree is not an equation, or a place is not a node, is the root, is not a candidate, or is in an
            equation that is false or has decimal numbers.
    """
    place = checked_integers("preorder", preorder, np.int64)
    if len(place) != len(equations):
        raise GraphError(f"there are {len(place)} places for {len(equations)} equations; give one for each")

    def refuse(wrong: NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            name = f"equation {first}" if names is None else names[first]
            raise GraphError(f"{name}, blank at place {int(place[first])} in preorder: {problem}")

    refuse(place == 0, "the root cannot be blank")
    refuse((place < 0) | (place >= np.diff(equations.begin)), "it has no such node")
    refuse(_left_out(equations), "it is false, or has decimal numbers")
    node = _node_of_preorder(equations)[equations.begin[:-1] + place]
    source = equations if spelled is None else spelled
    original = _candidate_of_nodes(source, candidates, spelled=spelled is not None)[node]
    refuse(original < 0, f"it is none of the {len(candidates)} candidates")
    return Blanks(np.arange(len(equations)), node, original)


def _left_out(equations: Forest) -> NDArray[np.bool_]:
    """Return which equations are false or have decimal numbers, bool ``[trees]``."""
    label = EquationVerification().examples(equations).targets["label"]
    if equations.value is None:
        return label == 0
    return (label == 0) | np.logical_or.reduceat(~np.isnan(equations.value), equations.begin[:-1])


def _candidate_of_nodes(equations: Forest, candidates: Candidates, *, spelled: bool = False) -> NDArray[np.int64]:
    """Return the first candidate that equals the subtree of each node, or -1."""
    what = candidates.forest if spelled else candidates.unified
    joined = Forest.concatenate([equations.with_data(), what.with_data()])
    number = None if joined.value is None else NUMBER
    index = SubtreeIndex(joined, Vocabulary.from_forest(joined, number=number))
    candidate_of_number = np.full(index.num_distinct, -1)
    roots = index.number[joined.begin[len(equations) + 1 :] - 1]
    candidate_of_number[roots[::-1]] = np.arange(len(candidates))[::-1]  # what is written last stays
    return candidate_of_number[index.number[: equations.num_nodes]]


def _node_of_preorder(forest: Forest) -> NDArray[np.int64]:
    """Return the node at each place of the preorder of each tree, tree after tree; ``[nodes]``.

    The place of a node is the number of its ancestors plus the number of nodes before its subtree in post-order.
    """
    node = np.empty(forest.num_nodes, np.int64)
    node[forest.depth() + forest.subtree_begin()] = np.arange(forest.num_nodes)
    return node


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
        content = hashlib.sha256(EquationVerification().examples(self.forest).digest().encode())
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
    blanked = blank_out(equations[chosen], candidates, seed=seed)
    return replace(blanked, ids=chosen[blanked.ids].tolist())


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
            raise GraphError(f"{record}: blank_node is {shown(blank)}; it must be a place, from 0")
    place = np.array([int(blank or -1) for blank in given.tolist()])
    if (place < 0).all():
        blanked = blank_out(forest, candidates, seed=seed)
    else:
        usable = np.flatnonzero((place > 0) & (label != 0))
        chosen = forest[usable]
        spelled = Forest.from_trees(
            parse_preorder(text, unify=False) if text and parse_preorder(text) == tree else tree
            for tree, text in zip(chosen, preorder[usable].tolist(), strict=True)
        )
        blanks = place_blanks(chosen, candidates, place[usable], spelled, [names[tree] for tree in usable])
        blanked = BlankedEquations(chosen, blanks, usable.tolist())
    if not len(blanked):
        raise RecipeError(f"no equation of {name} is true and has a blank beside its root")
    if len(blanked) < len(forest):
        left_out = len(forest) - len(blanked)
        _logger.info("%s: %d of %d equations left out: false, or without a blank", name, left_out, len(forest))
    return replace(blanked, ids=[file.ids[tree] for tree in blanked.ids])


def _kept(forest: Forest, blanks: Blanks, ids: list[Any]) -> BlankedEquations:
    """Return the equations that have blanks."""
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(forest.begin)[blanks.tree])])
    node = blanks.node - forest.begin[blanks.tree] + begin[:-1]
    return BlankedEquations(forest[blanks.tree], Blanks(np.arange(len(blanks)), node, blanks.original), ids)
