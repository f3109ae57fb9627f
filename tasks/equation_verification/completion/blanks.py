"""Blanks of equations: one node each, whose subtree is a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError
from treemem.schedule import SubtreeIndex
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.completion.candidates import Candidates
from treemem.trees.equation_labels import NUMBER
from treemem.trees.forest import Forest
from treemem.trees.forest_arrays import checked_integers
from treemem.trees.vocabulary import Vocabulary


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
    tree: ArrayLike | None = None,
    spelled: Forest | None = None,
    names: Sequence[str] | None = None,
) -> Blanks:
    """Return blanks at given nodes of equations.

    Args:
        equations: trees with root ``Equality``, as readers return them.
        candidates: what may be blank.
        preorder: ``[blanks]``, the place of each blank in the preorder of its equation, whose root is 0.
        tree: ``[blanks]``, the equation of each; by default all, in order.
        spelled: the same trees with leaves as spelled (``One:1`` apart from ``Integer:1``), to find the original among
            candidates that networks read alike. By default the first of those is the original.
        names: name of each equation, for errors; by default ``"equation 3"``.

    Raises:
        GraphError: a tree is not an equation, or a place is not a node, is the root, is not a candidate, or is in an
            equation that is false or has decimal numbers.
    """
    trees = np.arange(len(equations)) if tree is None else checked_integers("tree", tree, np.int64)
    place = checked_integers("preorder", preorder, np.int64)
    if len(place) != len(trees) or ((trees < 0) | (trees >= len(equations))).any():
        raise GraphError(f"{len(place)} places for the blanks of {len(trees)} of {len(equations)} equations")
    left_out, candidate = _left_out(equations), _candidate_of_nodes(equations, candidates)
    size = np.diff(equations.begin)

    def refuse(wrong: NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            tree = int(trees[first])
            name = f"equation {tree}" if names is None else names[tree]
            raise GraphError(f"{name}, blank at place {int(place[first])} in preorder: {problem}")

    refuse(place == 0, "the root cannot be blank")
    refuse((place < 0) | (place >= size[trees]), "it has no such node")
    refuse(left_out[trees], "it is false, or has decimal numbers")
    node = _node_of_preorder(equations)[equations.begin[trees] + place]
    if spelled is not None:
        candidate = _candidate_of_nodes(spelled, candidates, spelled=True)
    original = candidate[node]
    refuse(original < 0, f"it is none of the {len(candidates)} candidates")
    return Blanks(trees, node, original)


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
