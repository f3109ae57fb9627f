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
from treemem.errors import GraphError, ParseError
from treemem.trees.bracketed_lines import WordNumbers, numbered_words, sums_by_text
from treemem.trees.brackets import CONSTITUENT
from treemem.trees.forest import Forest
from treemem.trees.listops import DIGITS, END, OPERATORS, ListOpsForm, format_listops, parse_listops
from treemem.trees.postorder import concatenated_ranges, stable_order
from treemem.trees.source_text import check_texts

TOKENS = (*DIGITS, *OPERATORS, END)
FIRST_OPERATOR, END_TOKEN = len(DIGITS), len(TOKENS) - 1
LABELS = (*TOKENS, CONSTITUENT)

_CONSTITUENT = len(TOKENS)
_OPEN, _CLOSE = len(TOKENS), len(TOKENS) + 1
_WORDS = (*TOKENS, "(", ")")
_TEXTS_AT_ONCE = 8192


class Expressions(NamedTuple):
    """Whole expressions as tokens, one after the other.

    Attributes:
        token: uint8 ``[tokens]``, index into ``TOKENS``.
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
        return Expressions(self.token[concatenated_ranges(self.begin[:-1][index], length)], _begin(length))

    def spellings(self) -> list[bytes]:
        """The tokens of each expression as bytes: equal exactly where expressions are."""
        whole = self.token.tobytes()
        return [whole[first:last] for first, last in itertools.pairwise(self.begin.tolist())]

    def forest(self, form: ListOpsForm = "binary") -> Forest:
        """The trees of all expressions; :func:`~treemem.trees.listops.parse_listops` says of which forms."""
        checked_choice("form", form, get_args(ListOpsForm))
        return _binary_forest(self) if form == "binary" else _nary_forest(self)


def join(parts: Sequence[Expressions]) -> Expressions:
    """The expressions of all parts, one part after the other."""
    token = np.concatenate([np.empty(0, np.uint8), *(part.token for part in parts)])
    length = np.concatenate([np.empty(0, np.int64), *(part.length() for part in parts)])
    return Expressions(token, _begin(length))


def expressions_of_lines(
    texts: Sequence[str], *, source: str = "", first_line: int = 1, lines: Sequence[int] | None = None
) -> Expressions:
    """Read texts such as :func:`~treemem.trees.listops.parse_listops` reads, one expression each.

    Args:
        texts: the expressions, each plain or in binary brackets.
        source: the file that they come from, for messages.
        first_line: where the first of them stands there; each next one stands in the next line.
        lines: the line of each text, where they do not follow one another.

    Raises:
        ParseError: the first text that is no expression, with its line.

    Example:
        >>> expressions_of_lines(["[MAX 2 9 ]", "( ( ( [SM 6 ) 5 ) ] )"]).length().tolist()
        [4, 4]
    """
    check_texts(texts, source=source, first_line=first_line, lines=lines)
    parts = []
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = texts[first : first + _TEXTS_AT_ONCE]
        numbers = WordNumbers({name.encode(): index for index, name in enumerate(_WORDS)})
        word, num_words = numbered_words([text.replace(END, f" {END} ") for text in chunk], numbers)
        wrong = _first_wrong(word, num_words)
        if wrong is not None:
            line = first_line + first + wrong if lines is None else lines[first + wrong]
            try:
                parse_listops(chunk[wrong])
                raise ParseError("this is no expression of ListOps", chunk[wrong])
            except ParseError as error:
                raise error.at(line, source) from error
        is_token = word < _OPEN
        parts.append(Expressions(word[is_token].astype(np.uint8), _begin(sums_by_text(is_token, num_words))))
    return join(parts)


def _first_wrong(word: NDArray[np.int64], num_words: NDArray[np.int64]) -> int | None:
    """The first text that is no expression; None where all are. Each check relies on those before it."""
    found = None
    for check in (_first_unknown, _first_unbalanced, _first_astray, _first_misplaced):
        first = check(word, num_words)
        if first is not None:
            found, num_words = first, num_words[:first]
            word = word[: int(num_words.sum())]
    return found


def _first_unknown(word: NDArray[np.int64], num_words: NDArray[np.int64]) -> int | None:
    """The first text with a word that is none of ListOps, or without a token."""
    return _first((sums_by_text(word < _OPEN, num_words) == 0) | (sums_by_text(word > _CLOSE, num_words) > 0))


def _first_unbalanced(word: NDArray[np.int64], num_words: NDArray[np.int64]) -> int | None:
    """The first text whose tokens, read plain, are not one expression."""
    is_token = word < _OPEN
    token, begin = word[is_token], _begin(sums_by_text(is_token, num_words))
    total = _nesting(token)
    text = np.repeat(np.arange(len(num_words)), np.diff(begin))
    nesting = total - np.concatenate([np.zeros(1, np.int64), total])[begin[:-1]][text]
    is_last = np.zeros(len(token), bool)
    is_last[begin[1:] - 1] = True
    follows_operator = np.concatenate([np.zeros(1, bool), _is_operator(token)])[: len(token)]
    wrong = (nesting < 0) | ((nesting == 0) != is_last) | ((token == END_TOKEN) & follows_operator)
    return _first(wrong, text)


def _first_astray(word: NDArray[np.int64], num_words: NDArray[np.int64]) -> int | None:
    """The first text with a ``(`` before no token, or a ``)`` behind none."""
    last = np.cumsum(num_words) - 1
    wrong = np.concatenate([np.zeros(1, bool), (word[1:] == _CLOSE) & (word[:-1] == _OPEN)])[: len(word)]
    wrong[last] |= word[last] == _OPEN
    wrong[last - num_words + 1] |= word[last - num_words + 1] == _CLOSE
    return _first(wrong, np.repeat(np.arange(len(num_words)), num_words))


def _first_misplaced(word: NDArray[np.int64], num_words: NDArray[np.int64]) -> int | None:
    """The first text that has round brackets, but not those of the published form."""
    is_token = word < _OPEN
    if is_token.all():
        return None
    token, num_tokens = word[is_token], int(is_token.sum())
    token_before = np.cumsum(is_token) - 1
    opens = np.bincount(token_before[word == _OPEN] + 1, minlength=num_tokens)
    closes = np.bincount(token_before[word == _CLOSE], minlength=num_tokens)
    opening, _, num_arguments = _lists(token)
    expected = np.zeros(num_tokens, np.int64)
    expected[opening] = num_arguments + 1
    text = np.repeat(np.arange(len(num_words)), num_words)
    has_brackets = sums_by_text(~is_token, num_words) > 0
    wrong = (opens != expected) | (closes != _num_attached(token))
    return _first(wrong & has_brackets[text[is_token]], text[is_token])


def _first(wrong: NDArray[np.bool_], text: NDArray[np.int64] | None = None) -> int | None:
    """The place of the first wrong entry, or the text that it is of."""
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    return place if text is None else int(text[place])


def _begin(length: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(length, dtype=np.int64)])


def _is_operator(token: NDArray[np.integer]) -> NDArray[np.bool_]:
    return (token >= FIRST_OPERATOR) & (token < END_TOKEN)


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
    node_begin = _begin(count)
    label = np.full(int(node_begin[-1]), _CONSTITUENT, np.int32)
    label[node_begin[:-1]] = token
    arity = np.where(label == _CONSTITUENT, 2, 0).astype(np.int32)
    return Forest(LABELS, label, arity, node_begin[begin])


def _nary_forest(expressions: Expressions) -> Forest:
    token, begin = expressions
    opening, closing, num_arguments = _lists(token)
    label, arity = token.astype(np.int32), np.zeros(len(token), np.int32)
    label[closing] = token[opening]
    arity[closing] = num_arguments
    is_node = ~_is_operator(token)
    return Forest(LABELS, label[is_node], arity[is_node], _begin(is_node.astype(np.int64))[begin])


def expressions_of_forest(forest: Forest) -> Expressions:
    """The tokens of trees in either form, all in the same.

    Raises:
        GraphError: a tree that is no expression, or trees of both forms.
    """
    form = form_of(forest)
    number = {name: index for index, name in enumerate(TOKENS)}
    if form == "nary":
        number.update({"(": _OPEN, ")": END_TOKEN})
    sequences = forest.tokens("leaves" if form == "binary" else "brackets")
    word = np.array([number.get(name, _CLOSE + 1) for name in sequences.tokens], np.int64)[sequences.token]
    is_token = word != _OPEN
    token, begin = word[is_token], _begin(is_token.astype(np.int64))[sequences.begin]
    num_tokens = np.diff(begin)
    if _first_unknown(token, num_tokens) is None and _first_unbalanced(token, num_tokens) is None:
        expressions = Expressions(token.astype(np.uint8), begin)
        if expressions.forest(form) == forest.with_data():
            return expressions
    for index, tree in enumerate(forest):
        try:
            format_listops(tree)
        except GraphError as error:
            raise GraphError(f"tree {index}: {error}") from error
    raise GraphError("some of these trees are binary expressions of ListOps and others n-ary; give all in one form")


def form_of(forest: Forest) -> ListOpsForm:
    """``"binary"`` where an inner node has the label that binary expressions have there, else ``"nary"``."""
    is_constituent = np.array([label == CONSTITUENT for label in forest.labels], bool)
    inner = forest.label[forest.arity > 0]
    return "binary" if len(inner) and is_constituent[inner].any() else "nary"
