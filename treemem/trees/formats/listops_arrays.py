"""Many ListOps expressions as arrays: lines of text into tokens, tokens into the arrays of a forest and back.

The tokens of an expression are its digits, operators and ``]``, in the order of the text; ``TOKENS`` numbers them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_choice
from treemem.errors import GraphError
from treemem.trees.forest import Forest
from treemem.trees.formats.bracketed_lines import WordNumbers, Words, read_words
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.listops import (
    DIGITS,
    END,
    OPERATORS,
    RARE_OPERATORS,
    ListOpsForm,
    format_listops,
    parse_listops,
)
from treemem.trees.postorder import concatenated_ranges, offsets, stable_order

TOKENS = (*DIGITS, *OPERATORS, END)
FIRST_OPERATOR, END_TOKEN = len(DIGITS), len(TOKENS) - 1
LABELS = (*TOKENS, CONSTITUENT)
"""Labels of forests; those with rare operators have these after them."""

_CONSTITUENT = len(TOKENS)
_WITH_RARE = (*LABELS, *RARE_OPERATORS)
_OPEN, _CLOSE = len(_WITH_RARE), len(_WITH_RARE) + 1


class Expressions(NamedTuple):
    """Whole expressions as tokens, one after the other.

    Attributes:
        token: uint8 ``[tokens]``, index into ``TOKENS``; 18 and 19 are the rare operators.
        begin: int64 ``[expressions + 1]``; expression ``i`` is ``token[begin[i]:begin[i + 1]]``.
    """

    token: NDArray[np.uint8]
    begin: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begin) - 1

    def length(self) -> NDArray[np.int64]:
        """Number of tokens of each expression."""
        return np.diff(self.begin)

    def depth(self) -> NDArray[np.int64]:
        """The most lists of each expression that stand within one another; 0 for a lone digit."""
        nesting = _nesting(self.token)
        return np.maximum.reduceat(nesting, self.begin[:-1]) if len(self) else np.empty(0, np.int64)

    def chosen(self, index: NDArray[np.int64]) -> Expressions:
        """Some of the expressions, by their numbers."""
        length = self.length()[index]
        return Expressions(self.token[concatenated_ranges(self.begin[:-1][index], length)], offsets(length))

    def spellings(self) -> list[bytes]:
        """The tokens of each expression as bytes: equal exactly where expressions are."""
        whole = self.token.tobytes()
        return [whole[first:last] for first, last in itertools.pairwise(self.begin.tolist())]

    def forest(self, form: ListOpsForm = "binary") -> Forest:
        """The trees of all expressions; :func:`~treemem.trees.formats.listops.parse_listops` says of which forms."""
        checked_choice("form", form, get_args(ListOpsForm))
        return _binary_forest(self) if form == "binary" else _nary_forest(self)


def join(parts: Sequence[Expressions]) -> Expressions:
    """The expressions of all parts, one part after the other."""
    token = np.concatenate([np.empty(0, np.uint8), *(part.token for part in parts)])
    length = np.concatenate([np.empty(0, np.int64), *(part.length() for part in parts)])
    return Expressions(token, offsets(length))


def expressions_of_lines(
    texts: Sequence[str], *, source: str = "", first_line: int = 1, lines: Sequence[int] | None = None
) -> Expressions:
    """Read texts such as :func:`~treemem.trees.formats.listops.parse_listops` reads, one expression each.

    Args:
        texts: the expressions, each plain or in binary brackets.
        source, first_line, lines: see :func:`~treemem.trees.formats.bracketed_lines.forest_of_bracketed`.

    Raises:
        ParseError: the first bad text, with its line.

    Example:
        >>> expressions_of_lines(["[MAX 2 9 ]", "( ( ( [SM 6 ) 5 ) ] )"]).length().tolist()
        [4, 4]
    """
    known = enumerate((*_WITH_RARE, "(", ")"))
    numbers = WordNumbers({name.encode(): index for index, name in known if index != _CONSTITUENT})
    words_of_chunks = read_words(
        texts, numbers, "()]", _are_expressions, parse_listops, source=source, first_line=first_line, lines=lines
    )
    parts = []
    for words in words_of_chunks:
        is_token = words.number < _OPEN
        parts.append(Expressions(words.number[is_token].astype(np.uint8), offsets(is_token)[words.begin]))
    return join(parts)


def _are_expressions(texts: Sequence[str], words: Words) -> bool:
    """Whether every text is an expression, plain or in the published brackets."""
    is_token = words.number < _OPEN
    begin = offsets(is_token)[words.begin]
    token = words.number[is_token]
    if (words.number > _CLOSE).any() or not _are_balanced(token, begin):
        return False
    if is_token.all():
        return True
    first, last = words.number[words.begin[:-1]], words.number[words.begin[1:] - 1]
    opens_at_end = (words.number[1:] == _CLOSE) & (words.number[:-1] == _OPEN)
    if opens_at_end.any() or (first == _CLOSE).any() or (last == _OPEN).any():
        return False
    opening, _, num_arguments = _lists(token)
    expected = np.zeros(len(token), np.int64)
    expected[opening] = num_arguments + 1
    token_before = np.cumsum(is_token) - 1
    opens = np.bincount(token_before[words.number == _OPEN] + 1, minlength=len(token))
    closes = np.bincount(token_before[words.number == _CLOSE], minlength=len(token))
    is_plain = np.repeat(np.diff(begin) == np.diff(words.begin), np.diff(begin))
    return bool((is_plain | ((opens == expected) & (closes == _num_attached(token)))).all())


def _are_balanced(token: NDArray[np.integer], begin: NDArray[np.int64]) -> bool:
    """Whether each part of ``token`` is one expression, read plain."""
    if not np.diff(begin).all():
        return False
    nesting = _nesting(token)
    is_last = np.zeros(len(token), bool)
    is_last[begin[1:] - 1] = True
    has_no_arguments = (token[1:] == END_TOKEN) & _is_operator(token[:-1])
    return not has_no_arguments.any() and bool(((nesting == 0) == is_last).all()) and bool((nesting >= 0).all())


def _is_operator(token: NDArray[np.integer]) -> NDArray[np.bool_]:
    return (token >= FIRST_OPERATOR) & (token != END_TOKEN)


def _nesting(token: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many lists are open after each token; every expression starts and ends with none."""
    return np.cumsum(_is_operator(token).astype(np.int64) - (token == END_TOKEN))


def _num_attached(token: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many inner nodes of the binary tree each token completes.

    A digit and a whole list are attached to the list that they stand in; a ``]`` is attached to its own list before.
    """
    is_end = token == END_TOKEN
    is_within = _nesting(token) > 0
    return is_end + (is_within & ~_is_operator(token)).astype(np.int64)


def _lists(token: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The lists of whole expressions: the places of their operators and of their ``]``, their number of arguments.

    Sorted by the nesting of lists, operators and ``]`` alternate; the arguments of a list are those of its nesting
    that stand between its two.
    """
    nesting = _nesting(token)
    is_operator, is_end = _is_operator(token), token == END_TOKEN
    mark = np.flatnonzero(is_operator | is_end)
    level = nesting[mark] + is_end[mark]
    order = stable_order(level)
    opening, closing = mark[order][0::2], mark[order][1::2]
    level = level[order][0::2]
    argument = np.flatnonzero(~is_operator & (nesting > 0))
    by_level = argument[stable_order(nesting[argument])]
    keys = nesting[by_level] * len(token) + by_level
    first, last = (np.searchsorted(keys, level * len(token) + place) for place in (opening, closing))
    return opening, closing, last - first


def _binary_forest(expressions: Expressions) -> Forest:
    token, begin = expressions
    count = 1 + _num_attached(token)
    node_begin = offsets(count)
    label = np.full(int(node_begin[-1]), _CONSTITUENT, np.int32)
    label[node_begin[:-1]] = token
    arity = np.where(label == _CONSTITUENT, 2, 0).astype(np.int32)
    return Forest(_labels_of(token), label, arity, node_begin[begin])


def _nary_forest(expressions: Expressions) -> Forest:
    token, begin = expressions
    opening, closing, num_arguments = _lists(token)
    label, arity = token.astype(np.int32), np.zeros(len(token), np.int32)
    label[closing] = token[opening]
    arity[closing] = num_arguments
    is_node = ~_is_operator(token)
    return Forest(_labels_of(token), label[is_node], arity[is_node], offsets(is_node)[begin])


def _labels_of(token: NDArray[np.uint8]) -> tuple[str, ...]:
    return _WITH_RARE if (token > _CONSTITUENT).any() else LABELS


def expressions_of_forest(forest: Forest) -> Expressions:
    """The tokens of trees in either form, all in the same.

    Raises:
        GraphError: a tree that is no expression, or trees of both forms.
    """
    form = form_of(forest)
    number = {name: index for index, name in enumerate(_WITH_RARE) if index != _CONSTITUENT}
    if form == "nary":
        number.update({"(": _OPEN, ")": END_TOKEN})
    sequences = forest.tokens("leaves" if form == "binary" else "brackets")
    word = np.array([number.get(name, _CLOSE + 1) for name in sequences.tokens], np.int64)[sequences.token]
    is_token = word != _OPEN
    token, begin = word[is_token], offsets(is_token)[sequences.begin]
    if (token < _OPEN).all() and _are_balanced(token, begin):
        expressions = Expressions(token.astype(np.uint8), begin)
        if expressions.forest(form) == forest.with_data():
            return expressions
    for place, tree in enumerate(forest, start=1):
        try:
            format_listops(tree)
        except GraphError as error:
            raise GraphError(f"tree {place}: {error}") from error
    raise GraphError("some of these trees are binary expressions of ListOps and others n-ary; give all in one form")


def form_of(forest: Forest) -> ListOpsForm:
    """``"binary"`` where an inner node has the label that binary expressions have there, else ``"nary"``."""
    is_constituent = np.array([label == CONSTITUENT for label in forest.labels], bool)
    inner = forest.label[forest.arity > 0]
    return "binary" if len(inner) and is_constituent[inner].any() else "nary"
