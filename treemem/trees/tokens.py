"""Trees as sequences of tokens: what a sequence model reads where a tree model reads the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.errors import TreememError
from treemem.trees.forest import Forest
from treemem.trees.postorder import concatenated_ranges
from treemem.trees.vocabulary import Vocabulary

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
_LEAVES_ALONE = ("bracketed leaves", "leaves")


class TokenSequences(NamedTuple):
    """One sequence of tokens for each tree.

    Attributes:
        tokens: the token strings.
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


def token_table(vocabulary: Vocabulary, form: TokenForm) -> tuple[str, ...]:
    """Every token that trees of ``vocabulary`` can make, by its id; the leaves come first, with their own ids.

    Example:
        >>> token_table(Vocabulary(["x", "1"], [("Add", 2)]), "function")
        ('x', '1', 'Add', '(', ',', ')')
    """
    _check_form(form)
    number = () if vocabulary.number is None else (vocabulary.number,)
    labels = (*vocabulary.leaves, *number) if form in _LEAVES_ALONE else vocabulary.labels
    return tuple(dict.fromkeys([*labels, *_PUNCTUATION[form]]))


def forest_tokens(forest: Forest, form: TokenForm, vocabulary: Vocabulary | None = None) -> TokenSequences:
    """Write every tree as tokens.

    ================ ============================== ====================================================
    form             ``(f (g a) b c)``, ``(+ a b)`` reads as
    ================ ============================== ====================================================
    preorder         ``f g a b c``, ``+ a b``       labels, a parent before its children
    function         ``f ( g ( a ) , b , c )``      a label, then its children in brackets, between commas
    infix            ``f ( g ( a ) , b , c )``,     as ``function``, but the label of a node of two children
                     ``( a + b )``                  stands between them
    brackets         ``( f ( g a ) b c )``          as ``str(tree)`` prints it
    bracketed leaves ``( ( a ) b c )``              the labels of the leaves, each inner node in brackets
    leaves           ``a b c``                      the labels of the leaves
    ================ ============================== ====================================================

    Args:
        forest: the trees.
        form: one of the above.
        vocabulary: the ids of tokens are those of :func:`token_table`, and leaves that it does not know are read as its
            ``unknown``; by default ids count the forest's own labels, then the punctuation.

    Raises:
        VocabularyError: a label that the vocabulary does not know.
        TreememError: there is no such form.
    """
    _check_form(form)
    if vocabulary is None:
        table = tuple(dict.fromkeys([*forest.labels, *_PUNCTUATION[form]]))
        word = forest.label.astype(np.int64)
    else:
        table = token_table(vocabulary, form)
        symbol = vocabulary.encode(forest).symbol
        known = {token: index for index, token in enumerate(table)}
        of_label = np.array([known.get(label, 0) for label in forest.labels], np.int64)
        word = np.where(symbol >= 0, symbol, of_label[forest.label] if forest.num_nodes else symbol)
    known = {token: index for index, token in enumerate(table)}
    return _lay_out(forest, form, table, word, known)


def _lay_out(
    forest: Forest, form: TokenForm, table: tuple[str, ...], word: NDArray[np.int64], known: Mapping[str, int]
) -> TokenSequences:
    """Give every token its place.

    A node writes some tokens when the reader enters it, some when the reader leaves it. Before node ``j`` is entered,
    the nodes before it in preorder have been entered, and of these all but its ancestors have been left: they are the
    nodes before its subtree in post-order.
    """
    is_inner = forest.arity > 0
    before, swaps = _words_before(forest, form)
    opens = is_inner & (_CLOSE in _PUNCTUATION[form])
    spells = ~is_inner if form in _LEAVES_ALONE else ~swaps
    num_entering = (before != _NOTHING).astype(np.int64) + spells + opens
    num_leaving = opens.astype(np.int64)

    subtree_begin = forest.subtree_begin()
    rank = subtree_begin + forest.depth()  # in preorder
    entering = np.zeros(forest.num_nodes, np.int64)
    entering[rank] = num_entering
    entered = np.concatenate([np.zeros(1, np.int64), np.cumsum(entering)])
    left = np.concatenate([np.zeros(1, np.int64), np.cumsum(num_leaving)])
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


def _words_before(forest: Forest, form: TokenForm) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
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


def _check_form(form: str) -> None:
    if form not in get_args(TokenForm):
        raise TreememError(f"there is no token form {form!r}; there are {', '.join(get_args(TokenForm))}")
