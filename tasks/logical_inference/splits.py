"""Which pairs to train on, to validate with and to test: by number of operations, and by what their formulas hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, near_names
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR, VARIABLES, WORDS
from treemem.trees.source_text import shorten
from treemem.trees.tree import Tree
from treemem.trees.tree_pattern import ANY_SUBTREE, TreePattern

SYSTEMATIC = {
    "A": "( and ( not a ) )",
    "B": "( and ( not _ ) )",
    "C": "( and|or ( not _ ) )",
}
"""The systematic splits of Shen et al. 2019: pairs with such a subtree on either side are kept from training."""

_FORMULA, _CONNECTIVE = "formula", "and or or"
_REST = "rest"  # the bracket of a connective and the formula after it
_SORT_OF_WORD = {**dict.fromkeys(VARIABLES, _FORMULA), NOT: NOT, AND: _CONNECTIVE, OR: _CONNECTIVE}
_SORT_OF_BRACKET = {(NOT, _FORMULA): _FORMULA, (_FORMULA, _REST): _FORMULA, (_CONNECTIVE, _FORMULA): _REST}
_BRACKETS = f"'( {NOT} F )', '( F ( {AND} F ) )' and '( F ( {OR} F ) )', or the inner one of these alone"


def held_out_pattern(name_or_pattern: str) -> TreePattern:
    """The pattern of a systematic split by its letter, or one in brackets whose first item is a child.

    Raises:
        ParseError: neither.
        RecipeError: no bracket, or one that no formula of the form ``"binary"`` has, so that nothing could match it.
    """
    pattern = TreePattern.parse(SYSTEMATIC.get(name_or_pattern, name_or_pattern), first="child")
    if not pattern.tree.children:
        raise RecipeError(
            f"{name_or_pattern!r} is none of {', '.join(SYSTEMATIC)}, and no pattern in brackets such as "
            f"'( or ( not {ANY_SUBTREE} ) )'{near_names(name_or_pattern, SYSTEMATIC)}"
        )
    sorts: list[frozenset[str]] = []  # of the nodes whose parent is yet to come
    for node in pattern.tree.postorder():
        children = sorts[len(sorts) - len(node.children) :]
        del sorts[len(sorts) - len(children) :]
        sorts.append(_sorts_of_bracket(node, children) if children else _sorts_of_leaf(node))
    return pattern


def _sorts_of_leaf(leaf: Tree) -> frozenset[str]:
    """What a leaf of a pattern may be: ``NOT``, ``_CONNECTIVE``, ``_FORMULA`` or ``_REST``."""
    if leaf.label == ANY_SUBTREE:
        return frozenset({NOT, _CONNECTIVE, _FORMULA, _REST})
    names = leaf.label.split("|")
    if "" in names:
        raise RecipeError(f"{shorten(leaf.label)} in the pattern; alternatives are joined without blanks: {AND}|{OR}")
    if ANY_SUBTREE in names[1:] + names[:-1]:
        raise RecipeError(f"{shorten(leaf.label)} in the pattern; {ANY_SUBTREE} stands for anything, and so alone")
    for name in names:
        if name not in _SORT_OF_WORD:
            words = [ANY_SUBTREE, *WORDS]
            raise RecipeError(
                f"the pattern has the word {shorten(name)}{near_names(name, words)}; there are {' '.join(words)}"
            )
    return frozenset(_SORT_OF_WORD[name] for name in names)


def _sorts_of_bracket(bracket: Tree, children: Sequence[frozenset[str]]) -> frozenset[str]:
    """What a bracket of a pattern may be, given what its items may be: ``_FORMULA`` or ``_REST``, at least one."""
    shown = shorten(str(bracket).replace(CONSTITUENT + " ", ""))
    if len(children) != 2:
        problem = f"has {len(children)} item{'s' * (len(children) != 1)}, and those of formulas have two"
        raise RecipeError(f"the bracket {shown} {problem}: {_BRACKETS}")
    left, right = children
    sorts = {sort for (first, second), sort in _SORT_OF_BRACKET.items() if first in left and second in right}
    if not sorts:
        raise RecipeError(f"no formula has the bracket {shown}; there are {_BRACKETS}")
    return frozenset(sorts)


def examples_with(forest: Forest, pattern: TreePattern, trees_per_example: int) -> NDArray[np.bool_]:
    """Which examples have a tree in which the pattern occurs, bool ``[examples]``."""
    return np.asarray(pattern.occurs(forest).reshape(-1, trees_per_example).any(1))


def divided(
    operations: NDArray[np.int64],
    is_test: NDArray[np.bool_],
    held_out: NDArray[np.bool_] | None,
    is_validation: NDArray[np.bool_] | None = None,
    *,
    max_training_operations: int,
    validation_every: int,
) -> NDArray[np.str_]:
    """The split of each pair: ``"train"``, ``"validation"``, ``"test"``, or ``""`` for one that is left out.

    Pairs that are not for the test and have few enough operations are for training; the last of every so many
    of them is for validation, as in the authors' code, or else those that are given for it. All pairs for the test
    are for it, unless something is held out: then those that have it and more operations than any pair for training.

    Args:
        operations: of each pair, int64 ``[pairs]``.
        is_test: which pairs are kept for the test, bool ``[pairs]``.
        held_out: which pairs have what is held out; None: nothing is.
        is_validation: which pairs are given for validation, bool ``[pairs]``; None: one in so many is.
        max_training_operations: of the pairs for training and for validation.
        validation_every: how many of these there are for one that is for validation, where none are given.
    """
    split = np.full(len(operations), "", "<U10")
    for_training = ~is_test & (operations <= max_training_operations)
    for_test = is_test
    if held_out is not None:
        for_training = for_training & ~held_out
        for_test = is_test & held_out & (operations > max_training_operations)
    chosen = np.flatnonzero(for_training)
    split[chosen] = "train"
    if is_validation is None:
        split[chosen[validation_every - 1 :: validation_every]] = "validation"
    else:
        split[for_training & is_validation] = "validation"
    split[for_test] = "test"
    return split
