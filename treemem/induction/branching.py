"""Baseline trees that depend on the length of a sentence alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

import numpy as np

from treemem.errors import RecipeError
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.induced import checked_words
from treemem.trees.tree import Tree

Branching = Literal["left", "right", "balanced", "random"]


def left_branching(tokens: Sequence[str]) -> Tree:
    """Return ``((a b) c) d``.

    Raises:
        GraphError: no tokens.

    Example:
        >>> str(left_branching(["a", "b", "c", "d"]))
        '(X (X (X a b) c) d)'
    """
    return _split(tokens, lambda begin, end: end - 1)


def right_branching(tokens: Sequence[str]) -> Tree:
    """Return ``a (b (c d))``.

    Raises:
        GraphError: no tokens.

    Example:
        >>> str(right_branching(["a", "b", "c", "d"]))
        '(X a (X b (X c d)))'
    """
    return _split(tokens, lambda begin, end: begin + 1)


def balanced_branching(tokens: Sequence[str]) -> Tree:
    """Return the tree whose constituents are split in the middle; the left part of an odd number has one word more.

    Raises:
        GraphError: no tokens.

    Example:
        >>> str(balanced_branching(["a", "b", "c", "d", "e"]))
        '(X (X (X a b) c) (X d e))'
    """
    return _split(tokens, lambda begin, end: (begin + end + 1) // 2)


def random_branching(tokens: Sequence[str], seed: int | np.random.Generator) -> Tree:
    """Return a tree whose constituents are split between words at a place that is drawn uniformly.

    This is the usual random baseline. It is not the uniform distribution over binary trees, which has fewer balanced
    trees.

    Args:
        tokens: the words.
        seed: a seed or a generator.

    Raises:
        GraphError: no tokens.

    Example:
        >>> words = ["a", "b", "c", "d"]
        >>> random_branching(words, seed=1) == random_branching(words, seed=1)
        True
    """
    generator = np.random.default_rng(seed)
    return _split(tokens, lambda begin, end: int(generator.integers(begin + 1, end)))


def _split(tokens: Sequence[str], place: Callable[[int, int], int]) -> Tree:
    """Split the words from ``begin`` to before ``end`` at ``place(begin, end)``, and both parts likewise."""
    words = checked_words(tokens)
    pending, preorder = [(0, len(words))], []
    while pending:
        begin, end = pending.pop()
        preorder.append((begin, end))
        if end - begin > 1:
            middle = place(begin, end)
            pending += [(middle, end), (begin, middle)]
    done: list[Tree] = []
    for begin, end in reversed(preorder):
        done.append(Tree(words[begin]) if end - begin == 1 else Tree(CONSTITUENT, [done.pop(), done.pop()]))
    return done[0]


def baseline_trees(sentences: Iterable[Sequence[str]], branching: Branching, *, seed: int = 0) -> list[Tree]:
    """Return the trees of one baseline for all sentences.

    Args:
        sentences: the words of each.
        branching: which baseline.
        seed: of ``"random"``, for all sentences together.

    Raises:
        RecipeError: an unknown baseline.
        GraphError: a sentence without words.

    Example:
        >>> [str(tree) for tree in baseline_trees([["a", "b", "c"], ["d"]], "left")]
        ['(X (X a b) c)', 'd']
    """
    generator = np.random.default_rng(seed)
    by_name: dict[str, Callable[[Sequence[str]], Tree]] = {
        "left": left_branching,
        "right": right_branching,
        "balanced": balanced_branching,
        "random": lambda tokens: random_branching(tokens, generator),
    }
    if branching not in by_name:
        raise RecipeError(f"there is no branching {branching!r}; there are {', '.join(get_args(Branching))}")
    return [by_name[branching](tokens) for tokens in sentences]
