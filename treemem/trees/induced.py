"""Trees from what a sequence encoder computed for each token: the slot it attended to, or a syntactic distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from treemem.errors import GraphError
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.tree import Tree

_NONE = -1


def tree_from_pointers(pointers: ArrayLike, tokens: Sequence[str], *, slots: int | None = None) -> Tree:
    """Return the binary tree that the Ordered Memory built, from the slot that each step attended to most.

    This is algorithm 2 of Shen et al. 2019 as their code runs it. A stack starts with the first token. Step ``t`` joins
    the two topmost trees ``max(0, d_t - d_{t-1} + 1)`` times, or until one is left, and then pushes token ``t``. After
    the last token all trees are joined. So a pointer below the one before joins nothing, the same pointer joins once,
    and each slot higher joins once more. The first pointer has no effect.

    Args:
        pointers: integers ``[tokens]``, the attended slot from 0.
        tokens: the labels of the leaves, at least one.
        slots: the number of slots, to check the pointers against.

    Raises:
        GraphError: no tokens, another number of pointers, or pointers that are not slots.

    Example:
        >>> str(tree_from_pointers([3, 2, 2, 1], ["a", "b", "c", "d"]))
        '(X (X a b) (X c d))'
    """
    words = checked_words(tokens)
    slot = _array(pointers, words, "as many whole numbers as pointers")
    if slot.shape != (len(words),) or slot.dtype.kind not in "iu":
        raise GraphError(f"{len(words)} tokens need as many whole numbers as pointers, not {slot.dtype} {slot.shape}")
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
    """Join the two topmost trees this many times, or until one is left."""
    for _ in range(min(times, len(stack) - 1)):
        stack[-2:] = [Tree(CONSTITUENT, stack[-2:])]


def tree_from_pointer_probabilities(probabilities: ArrayLike, tokens: Sequence[str]) -> Tree:
    """Return :func:`tree_from_pointers` of the likeliest slot of each step, the first of equally likely ones.

    Args:
        probabilities: ``[tokens, slots]``, ``p_t`` of the Ordered Memory; the first row has no effect.
        tokens: the labels of the leaves.

    Raises:
        GraphError: no tokens, other shapes, or probabilities that are not finite.

    Example:
        >>> str(tree_from_pointer_probabilities([[0, 0], [0, 1], [0.5, 0.5]], ["a", "b", "c"]))
        '(X a (X b c))'
    """
    words = checked_words(tokens)
    table = _array(probabilities, words, f"probabilities [{len(words)}, slots]")
    if table.ndim != 2 or len(table) != len(words) or not table.shape[1] or table.dtype.kind not in "fiu":
        raise GraphError(
            f"{len(words)} tokens need probabilities [{len(words)}, slots], not {table.dtype} {list(table.shape)}"
        )
    if not np.isfinite(table).all():
        step = int(np.argmin(np.isfinite(table).all(1)))
        raise GraphError(f"the probabilities at token {step} ({words[step]!r}) are not finite: {table[step]}")
    return tree_from_pointers(table.argmax(1), words, slots=table.shape[1])


def tree_from_distances(distances: ArrayLike, tokens: Sequence[str]) -> Tree:
    """Return the binary tree that splits a sentence before the word of the largest distance, and so on in both parts.

    This is the greedy parser of Shen et al. 2019 (ON-LSTM). Let ``i`` be the word of the largest distance, the first
    one on ties. It makes a constituent ``(w_i rest)`` with what follows it; what precedes it, if anything, is the left
    sibling. So the distance of word ``i`` says how high the tree is split between the words ``i - 1`` and ``i``. Takes
    time linear in the number of tokens.

    Args:
        distances: ``[tokens]``, of any scale.
        tokens: the labels of the leaves, at least one.

    Raises:
        GraphError: no tokens, another number of distances, or a distance that is NaN.

    Example:
        >>> str(tree_from_distances([0.9, 0.2, 0.7, 0.1], ["the", "cat", "sat", "down"]))
        '(X the (X cat (X sat down)))'
        >>> str(tree_from_distances([0.1, 0.2, 0.7, 0.1], ["the", "cat", "sat", "down"]))
        '(X (X the cat) (X sat down))'
    """
    words = checked_words(tokens)
    given = _numbers(distances, words, "distances")
    before, after, top = _largest_first(given.tolist())
    order, pending = [], [top]
    while pending:
        word = pending.pop()
        order.append(word)
        pending.extend(part for part in (before[word], after[word]) if part != _NONE)
    trees = [Tree(word) for word in words]
    for word in reversed(order):  # parts before the whole
        if after[word] != _NONE:
            trees[word] = Tree(CONSTITUENT, [trees[word], trees[after[word]]])
        if before[word] != _NONE:
            trees[word] = Tree(CONSTITUENT, [trees[before[word]], trees[word]])
    return trees[top]


def tree_from_splits(splits: ArrayLike, tokens: Sequence[str]) -> Tree:
    """Return the binary tree that splits a sentence before the word of the largest value, and so on in both parts.

    Unlike :func:`tree_from_distances`, the word at the split is in no constituent of its own, so every binary tree has
    values that give it: the step that joins the constituent that begins at a word with the constituent on its left. Of
    equal values the first one splits first. Takes time linear in the number of tokens.

    Args:
        splits: ``[tokens]``, of any scale. The first has no effect.
        tokens: the labels of the leaves, at least one.

    Raises:
        GraphError: no tokens, another number of values, or a value that is NaN.

    Example:
        >>> str(tree_from_splits([0, 1, 3, 2], ["the", "cat", "sat", "down"]))
        '(X (X the cat) (X sat down))'
        >>> str(tree_from_splits([0, 3, 1, 2], ["the", "cat", "sat", "down"]))
        '(X the (X (X cat sat) down))'
    """
    words = checked_words(tokens)
    given = _numbers(splits, words, "values")[1:].tolist()
    trees = [Tree(word) for word in words]
    if not given:
        return trees[0]
    before, after, top = _largest_first(given)
    order, pending = [], [top]
    while pending:
        split = pending.pop()
        order.append(split)
        pending.extend(part for part in (before[split], after[split]) if part != _NONE)
    joined: dict[int, Tree] = {}
    for split in reversed(order):  # parts before the whole
        left, right = joined.get(before[split], trees[split]), joined.get(after[split], trees[split + 1])
        joined[split] = Tree(CONSTITUENT, [left, right])
    return joined[top]


def _numbers(values: ArrayLike, words: Sequence[str], name: str) -> NDArray[Any]:
    """Return an array with a number for each word.

    Raises:
        GraphError: another number of them, or one that is NaN.
    """
    given = _array(values, words, f"as many {name}")
    if given.shape != (len(words),) or given.dtype.kind not in "fiu":
        raise GraphError(f"{len(words)} tokens need as many {name}, not {given.dtype} {given.shape}")
    if np.isnan(given).any():
        position = int(np.argmax(np.isnan(given)))
        raise GraphError(f"the {name.removesuffix('s')} of token {position} ({words[position]!r}) is not a number")
    return given


def _largest_first(distances: list[float]) -> tuple[list[int], list[int], int]:
    """Return the Cartesian tree of distances: for each word the largest one before it and after it, and the root.

    Words whose part after them may still grow stand on a stack, their distances not ascending. A word with a larger
    distance than the topmost ones takes them as its part before.
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


def checked_words(tokens: Sequence[str]) -> list[str]:
    """Return ``tokens`` as a list.

    Raises:
        GraphError: there are none, or they are one string.
    """
    if isinstance(tokens, str):
        raise GraphError(f"tokens must be several strings, not the one string {tokens[:40]!r}")
    words = list(tokens)
    if not words:
        raise GraphError("there are no tokens; a tree has at least one leaf")
    return words


def _array(values: Any, words: Sequence[str], wanted: str) -> NDArray[Any]:
    """``values`` as an array; a tensor may have gradients and be on any device, also within a list."""
    if isinstance(values, list | tuple) and any(isinstance(value, torch.Tensor) for value in values):
        values = torch.stack(list(values))
    if isinstance(values, torch.Tensor):
        dtype = torch.float64 if values.is_floating_point() else values.dtype
        return values.detach().to("cpu", dtype).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise GraphError(f"{len(words)} tokens need {wanted}, not rows of unequal length") from error
