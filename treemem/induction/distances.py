"""Trees from the syntactic distances of the ON-LSTM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from treemem.errors import GraphError
from treemem.induction.word_values import array_for_words
from treemem.induction.words import checked_words
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.tree import Tree

_NONE = -1


def tree_from_distances(distances: ArrayLike, tokens: Sequence[str]) -> Tree:
    """The binary tree that splits a sentence before its word of the largest distance, and so on in both parts.

    The greedy parser of Shen et al. 2019 (ON-LSTM). Let ``i`` be the word of the largest distance, the first one on
    ties. What follows it makes with it a constituent ``(w_i rest)``, and what precedes it, where there is anything, is
    the left sibling of that. So the distance of word ``i`` says how high the tree is split between the words ``i - 1``
    and ``i``. Takes time in proportion to the number of tokens.

    Args:
        distances: ``[tokens]``, of any scale.
        tokens: what the leaves say, at least one.

    Raises:
        GraphError: no tokens, another number of distances, or a distance that is no number.

    Example:
        >>> str(tree_from_distances([0.9, 0.2, 0.7, 0.1], ["the", "cat", "sat", "down"]))
        '(X the (X cat (X sat down)))'
        >>> str(tree_from_distances([0.1, 0.2, 0.7, 0.1], ["the", "cat", "sat", "down"]))
        '(X (X the cat) (X sat down))'
    """
    words = checked_words(tokens)
    given = array_for_words(distances, words, "so many distances")
    if given.shape != (len(words),) or given.dtype.kind not in "fiu":
        raise GraphError(f"{len(words)} tokens need so many distances, not {given.dtype} {given.shape}")
    if np.isnan(given).any():
        position = int(np.argmax(np.isnan(given)))
        raise GraphError(f"the distance of token {position} ({words[position]!r}) is no number")

    before, after, top = _largest_first(given.tolist())
    order, pending = [], [top]
    while pending:
        word = pending.pop()
        order.append(word)
        pending.extend(part for part in (before[word], after[word]) if part != _NONE)
    trees = [Tree(word) for word in words]
    for word in reversed(order):  # a part after what it consists of
        if after[word] != _NONE:
            trees[word] = Tree(CONSTITUENT, [trees[word], trees[after[word]]])
        if before[word] != _NONE:
            trees[word] = Tree(CONSTITUENT, [trees[before[word]], trees[word]])
    return trees[top]


def _largest_first(distances: list[float]) -> tuple[list[int], list[int], int]:
    """The word of the largest distance of all; for each word, those of the parts before and after it that it splits.

    Together they are the Cartesian tree of the distances. The words whose part after them may still grow stand on a
    stack, their distances not ascending: a word that is larger than the topmost ones takes them as its part before.
    """
    before, after = [_NONE] * len(distances), [_NONE] * len(distances)
    open_words: list[int] = []
    for word, distance in enumerate(distances):
        while open_words and distances[open_words[-1]] < distance:
            before[word] = open_words.pop()
        if open_words:
            after[open_words[-1]] = word
        open_words.append(word)
    return before, after, open_words[0]
