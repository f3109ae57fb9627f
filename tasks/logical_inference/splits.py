"""Which pairs to train on, to validate with and to test: by number of operations, and by what their formulas hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, near_names
from treemem.trees.forest import Forest
from treemem.trees.logic import WORDS
from treemem.trees.tree_pattern import ANY_SUBTREE, TreePattern

SYSTEMATIC = {
    "A": "( and ( not a ) )",
    "B": "( and ( not _ ) )",
    "C": "( and|or ( not _ ) )",
}
"""The systematic splits of Shen et al. 2019: pairs with such a subtree on either side are kept from training."""


def held_out_pattern(name_or_pattern: str) -> TreePattern:
    """The pattern of a systematic split by its letter, or one in brackets whose first item is a child.

    Raises:
        ParseError: neither.
        RecipeError: the pattern has a word that no formula has, so that nothing could match it.
    """
    pattern = TreePattern.parse(SYSTEMATIC.get(name_or_pattern, name_or_pattern), first="child")
    words = [ANY_SUBTREE, *WORDS]
    for leaf in pattern.tree.leaves():
        for word in leaf.label.split("|"):
            if word not in words:
                raise RecipeError(
                    f"{name_or_pattern!r} is none of {', '.join(SYSTEMATIC)}, and as a pattern of formulas it has the "
                    f"word {word!r}{near_names(word, words)}; there are {' '.join(words)}"
                )
    return pattern


def examples_with(forest: Forest, pattern: TreePattern, trees_per_example: int) -> NDArray[np.bool_]:
    """Which examples have a tree in which the pattern occurs, bool ``[examples]``."""
    return np.asarray(pattern.occurs(forest).reshape(-1, trees_per_example).any(1))


def divided(
    operations: NDArray[np.int64],
    is_test: NDArray[np.bool_],
    held_out: NDArray[np.bool_] | None,
    *,
    max_training_operations: int,
    validation_every: int,
) -> NDArray[np.str_]:
    """The split of each pair: ``"train"``, ``"validation"``, ``"test"``, or ``""`` for one that is left out.

    Pairs that are not for the test and have few enough operations are for training; the last of every so many
    of them is for validation, as in the authors' code. All pairs for the test are for it, unless something is held
    out: then those that have it and more operations than any pair for training.

    Args:
        operations: of each pair, int64 ``[pairs]``.
        is_test: which pairs are kept for the test, bool ``[pairs]``.
        held_out: which pairs have what is held out; None: nothing is.
        max_training_operations: of the pairs for training.
        validation_every: how many of these there are for one that is for validation.
    """
    split = np.full(len(operations), "", "<U10")
    for_training = ~is_test & (operations <= max_training_operations)
    for_test = is_test
    if held_out is not None:
        for_training = for_training & ~held_out
        for_test = is_test & held_out & (operations > max_training_operations)
    chosen = np.flatnonzero(for_training)
    split[chosen] = "train"
    split[chosen[validation_every - 1 :: validation_every]] = "validation"
    split[for_test] = "test"
    return split
