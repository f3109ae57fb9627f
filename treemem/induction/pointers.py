"""Trees from the pointers of the Ordered Memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from treemem.errors import GraphError
from treemem.induction.word_values import array_for_words
from treemem.induction.words import checked_words
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.tree import Tree


def tree_from_pointers(pointers: ArrayLike, tokens: Sequence[str], *, slots: int | None = None) -> Tree:
    """The binary tree that the Ordered Memory built, by the slot that each step attended to most.

    Algorithm 2 of Shen et al. 2019 as their code runs it. A stack holds the trees made so far, at first the first
    token alone. Step ``t`` joins the two topmost trees ``max(0, d_t - d_{t-1} + 1)`` times, or until one is left, and
    then puts token ``t`` on top; after the last token all trees are joined. So a pointer below the one before joins
    nothing yet, the same pointer joins once, and each slot higher joins once more. The first pointer says nothing:
    there is only one tree then.

    Args:
        pointers: integers ``[tokens]``, the attended slot from 0.
        tokens: what the leaves say, at least one.
        slots: number of slots, where pointers are to be checked against it.

    Raises:
        GraphError: no tokens, another number of pointers, or pointers that are no slots.

    Example:
        >>> str(tree_from_pointers([3, 2, 2, 1], ["a", "b", "c", "d"]))
        '(X (X a b) (X c d))'
    """
    words = checked_words(tokens)
    slot = array_for_words(pointers, words, "so many whole numbers as pointers")
    if slot.shape != (len(words),) or slot.dtype.kind not in "iu":
        raise GraphError(f"{len(words)} tokens need so many whole numbers as pointers, not {slot.dtype} {slot.shape}")
    attended = slot[1:].tolist()
    if attended and (min(attended) < 0 or (slots is not None and max(attended) >= slots)):
        known = "from 0" if slots is None else f"0 to {slots - 1}"
        raise GraphError(f"pointers must be slots, {known}; these are {min(attended)} to {max(attended)}")

    previous = attended[0] if attended else 0
    stack = [Tree(words[0])]
    for word, pointer in zip(words[1:], attended, strict=True):
        _join(stack, pointer - previous + 1)
        stack.append(Tree(word))
        previous = pointer
    _join(stack, len(stack))
    return stack[0]


def _join(stack: list[Tree], times: int) -> None:
    """Join the two topmost trees so many times, or until one is left."""
    for _ in range(min(times, len(stack) - 1)):
        stack[-2:] = [Tree(CONSTITUENT, stack[-2:])]


def tree_from_pointer_probabilities(probabilities: ArrayLike, tokens: Sequence[str]) -> Tree:
    """:func:`tree_from_pointers` of the likeliest slot of each step; of equally likely ones, the first.

    Args:
        probabilities: ``[tokens, slots]``, ``p_t`` of the Ordered Memory; the first row says nothing.
        tokens: what the leaves say.

    Raises:
        GraphError: no tokens, other shapes, or probabilities that are not finite.

    Example:
        >>> str(tree_from_pointer_probabilities([[0, 0], [0, 1], [0.5, 0.5]], ["a", "b", "c"]))
        '(X a (X b c))'
    """
    words = checked_words(tokens)
    table = array_for_words(probabilities, words, f"probabilities [{len(words)}, slots]")
    if table.ndim != 2 or len(table) != len(words) or not table.shape[1] or table.dtype.kind not in "fiu":
        raise GraphError(
            f"{len(words)} tokens need probabilities [{len(words)}, slots], not {table.dtype} {list(table.shape)}"
        )
    if not np.isfinite(table).all():
        step = int(np.argmin(np.isfinite(table).all(1)))
        raise GraphError(f"the probabilities at token {step} ({words[step]!r}) are not finite: {table[step]}")
    return tree_from_pointers(table.argmax(1), words, slots=table.shape[1])
