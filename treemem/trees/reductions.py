"""Trees as the reductions of a stack: how often the two topmost nodes are composed after each token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treemem.trees.forest import Forest
from treemem.trees.token_layout import TokenForm, TokenSequences


def token_reductions(forest: Forest, form: TokenForm) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many compositions follow each token if the parts of each node are composed from left to right.

    The parts of a node are its label, its brackets and commas, as far as ``form`` writes them, and its children. A
    sequence of ``n`` tokens has ``n - 1`` compositions; those of :meth:`Forest.from_sequences` are composed from left
    to right.

    Args:
        forest: the trees.
        form: how they are written, see :func:`treemem.trees.tokens.forest_tokens`.

    Returns:
        int64 ``[tokens of all trees]``, and where the tokens of each tree begin, int64 ``[trees + 1]``.

    Example:
        >>> token_reductions(Forest.from_trees(["(f a (f b c))"]), "leaves")[0].tolist()
        [0, 0, 2]
        >>> token_reductions(Forest.from_trees(["(f a (f b c))"]), "preorder")[0].tolist()
        [0, 1, 0, 1, 2]
    """
    if form == "leaves" and forest.is_flat:
        begin = forest.flat_nodes()[1]
        reductions = np.ones(int(begin[-1]), np.int64)
        reductions[begin[:-1][np.diff(begin) > 0]] = 0
        return reductions, begin
    tokens = forest.tokens(form)
    if form == "leaves":
        pointer, child = forest.children()
        is_first = np.zeros(len(child), bool)
        is_first[pointer[:-1][forest.arity > 0]] = True
        last = (np.cumsum(forest.arity == 0) - 1)[child[~is_first]]
    elif form == "preorder":
        is_root = np.zeros(forest.num_nodes, bool)
        is_root[forest.begin[1:] - 1] = True
        last = (forest.subtree_begin() + forest.depth() + forest.subtree_size() - 1)[~is_root]
    else:
        return _bracket_reductions(forest, form, tokens), tokens.begin
    return np.bincount(last, minlength=len(tokens.token)), tokens.begin


def _bracket_reductions(forest: Forest, form: TokenForm, tokens: TokenSequences) -> NDArray[np.int64]:
    """Return reductions from the size of the stack: a node for each that is open, and at the end the root."""
    mark = np.array(tokens.tokens, object)[tokens.token]
    mark[tokens.node >= 0] = None
    opens, closes = mark == "(", mark == ")"
    if form in ("function", "infix"):
        arity = np.where(tokens.node >= 0, forest.arity[tokens.node], 0)
        heads = (arity > 0) & ((form == "function") | (arity != 2))  # labels before their brackets
        opens = heads | (opens & ~np.roll(heads, 1) if form == "infix" else False)
    change = opens.astype(np.int64) - closes
    length = np.diff(tokens.begin)
    before = np.repeat(np.concatenate([[0], np.cumsum(change)])[tokens.begin[:-1]], length)
    size = np.maximum(np.cumsum(change) - before, 1)
    last_size = np.roll(size, 1)
    last_size[tokens.begin[:-1][length > 0]] = 0
    return last_size + 1 - size
