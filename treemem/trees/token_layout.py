"""Trees as sequences of tokens: the place of every token, found for all trees at once."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.errors import TreememError
from treemem.trees.postorder import PostorderTrees, concatenated_ranges, offsets

TokenForm = Literal["preorder", "infix", "function", "brackets", "bracketed leaves", "leaves"]

_OPEN, _COMMA, _CLOSE = "(", ",", ")"
_PUNCTUATION: dict[TokenForm, tuple[str, ...]] = {
    "preorder": (),
    "infix": (_OPEN, _COMMA, _CLOSE),
    "function": (_OPEN, _COMMA, _CLOSE),
    "brackets": (_OPEN, _CLOSE),
    "bracketed leaves": (_OPEN, _CLOSE),
    "leaves": (),
}
LEAVES_ALONE = ("bracketed leaves", "leaves")


class TokenSequences(NamedTuple):
    """One sequence of tokens for each tree.

    Attributes:
        tokens: the token strings. A label ``(`` and the bracket ``(`` are two tokens.
        token: int64 ``[tokens of all trees]``, index into ``tokens``.
        begin: int64 ``[trees + 1]``; the sequence of tree ``i`` is ``token[begin[i]:begin[i + 1]]``.
        node: int64 ``[tokens of all trees]``, the node of the forest whose label a token is, -1 for punctuation.
    """

    tokens: tuple[str, ...]
    token: NDArray[np.int64]
    begin: NDArray[np.int64]
    node: NDArray[np.int64]

    def strings(self) -> list[list[str]]:
        """The tokens of each tree as text."""
        words = [self.tokens[index] for index in self.token.tolist()]
        return [words[first:last] for first, last in zip(self.begin[:-1], self.begin[1:], strict=True)]

    def padded(self, padding: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(token [trees, longest], length [trees])``, ``padding`` after the end of the shorter sequences."""
        length = np.diff(self.begin)
        table = np.full((len(length), int(length.max(initial=0))), padding, np.int64)
        row = np.repeat(np.arange(len(length)), length)
        table[row, concatenated_ranges(np.zeros_like(length), length)] = self.token
        return table, length


def punctuation(form: TokenForm) -> tuple[str, ...]:
    """The brackets and commas that a form writes.

    Raises:
        TreememError: there is no such form.
    """
    if form not in _PUNCTUATION:
        raise TreememError(f"there is no token form {form!r}; there are {', '.join(get_args(TokenForm))}")
    return _PUNCTUATION[form]


def write_tokens(
    forest: PostorderTrees, form: TokenForm, table: tuple[str, ...], word: NDArray[np.int64]
) -> TokenSequences:
    """Write every tree as tokens. ``table`` ends in the punctuation of the form.

    A node writes some tokens when the reader enters it, some when the reader leaves it. Before node ``j`` is entered,
    the nodes before it in preorder have been entered, and of these all but its ancestors have been left: they are the
    nodes before its subtree in post-order.
    """
    known = {token: index for index, token in enumerate(table)}  # the last of equal ones is punctuation
    is_inner = forest.arity > 0
    before, swaps = _words_before(forest, form)
    opens = is_inner & (_CLOSE in _PUNCTUATION[form])
    spells = ~is_inner if form in LEAVES_ALONE else ~swaps
    num_entering = (before != _NOTHING).astype(np.int64) + spells + opens
    num_leaving = opens.astype(np.int64)

    subtree_begin = forest.subtree_begin()
    rank = subtree_begin + forest.depth()  # in preorder
    entering = np.zeros(forest.num_nodes, np.int64)
    entering[rank] = num_entering
    entered = offsets(entering)
    left = offsets(num_leaving)
    place = entered[rank] + left[subtree_begin]
    token = np.empty(int(entered[-1] + left[-1]), np.int64)
    node = np.full(len(token), -1, np.int64)

    comma = before == _A_COMMA
    if comma.any():
        token[place[comma]] = known[_COMMA]
    operator = np.flatnonzero(before == _ITS_PARENT)
    parent = forest.parent()[operator]
    token[place[operator]], node[place[operator]] = word[parent], parent
    place = place + (before != _NOTHING)
    opens_first = swaps if form == "infix" else opens & (form in ("brackets", "bracketed leaves"))
    if opens_first.any():
        token[place[opens_first]] = known[_OPEN]
    place = place + (opens_first & ~swaps)
    token[place[spells]], node[place[spells]] = word[spells], np.flatnonzero(spells)
    if form in ("function", "infix"):
        after = opens & ~swaps
        token[place[after] + 1] = known[_OPEN]
    if opens.any():
        end = entered[rank + forest.subtree_size()] + left[:-1]
        token[end[opens]] = known[_CLOSE]
    begin = entered[forest.begin] + left[forest.begin]
    return TokenSequences(table, token, begin, node)


_NOTHING, _A_COMMA, _ITS_PARENT = 0, 1, 2


def _words_before(forest: PostorderTrees, form: TokenForm) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """What stands before each node, and which nodes write their label between their children."""
    before = np.full(forest.num_nodes, _NOTHING, np.int8)
    swaps = np.zeros(forest.num_nodes, bool)
    if form in ("function", "infix"):
        pointer, child = forest.children()
        is_first = np.zeros(len(child), bool)
        is_first[pointer[:-1][forest.arity > 0]] = True
        before[child[~is_first]] = _A_COMMA
    if form == "infix":
        swaps = forest.arity == 2
        before[child[pointer[1:][swaps] - 1]] = _ITS_PARENT
    return before, swaps
