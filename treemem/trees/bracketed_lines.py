"""Many binary trees in brackets, one a text, straight into the arrays of a forest.

In post-order, the nodes of ``( ( a b ) c )`` are its words with each ``)`` as a node of two children: ``a b ) c )``.
What remains is to check that the ``(`` stand where the ``)`` say.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError
from treemem.trees.brackets import CONSTITUENT, parse_brackets
from treemem.trees.forest import Forest
from treemem.trees.postorder import find_children, stack_sizes
from treemem.trees.source_text import check_texts, shorten

_TEXTS_AT_ONCE = 8192
_OPEN, _CLOSE = 0, 1
_TOKEN = re.compile(r"[()]|[^ \t\r\n\f\v()]+")


def forest_of_bracketed(
    texts: Sequence[str],
    *,
    source: str = "",
    first_line: int = 1,
    lines: Sequence[int] | None = None,
    parse: Callable[[str], object] | None = None,
) -> Forest:
    """Read texts such as ``( a ( and b ) )``, of bare words in brackets of two.

    The same trees as :func:`~treemem.trees.brackets.parse_brackets` with ``first="child"`` gives, for millions of words
    a second.

    Args:
        texts: one tree each.
        source: the file that they come from, for messages.
        first_line: where the first of them stands there; each next one stands in the next line.
        lines: the line of each text, where they do not follow one another.
        parse: what a text that does not fit is given to, for an exact error; ``parse_brackets`` by default.

    Returns:
        A tree a text; inner nodes have the label ``X`` and two children.

    Raises:
        ParseError: the first text that is no such tree, with its line.

    Example:
        >>> [str(tree) for tree in forest_of_bracketed(["( a ( and b ) )", "a"])]
        ['(X a (X and b))', 'a']
    """
    check_texts(texts, source=source, first_line=first_line, lines=lines)
    word_number = WordNumbers({b"(": _OPEN, b")": _CLOSE})
    bare = [True, True]
    label_parts, arity_parts, length_parts = [], [], []
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = texts[first : first + _TEXTS_AT_ONCE]
        word, num_words = numbered_words(chunk, word_number)
        bare.extend(_is_bare(_decoded(name)) for name in itertools.islice(word_number, len(bare), None))
        wrong = _first_wrong(word, num_words, np.array(bare))
        if wrong is not None:
            line = first_line + first + wrong if lines is None else lines[first + wrong]
            _explain(chunk[wrong], line, source, parse)
        is_node = word != _OPEN
        label_parts.append(word[is_node])
        arity_parts.append(2 * (word[is_node] == _CLOSE))
        length_parts.append(sums_by_text(is_node, num_words))
    leaves = [_decoded(name) for name in itertools.islice(word_number, 2, None)]
    labels = tuple(dict.fromkeys([CONSTITUENT, *leaves]))
    place = {label: index for index, label in enumerate(labels)}
    label_of_word = np.array([0, *(place[label] for label in (CONSTITUENT, *leaves))], np.int32)
    none = np.empty(0, np.int64)
    return Forest(
        labels,
        label_of_word[np.concatenate([none, *label_parts])],
        np.concatenate([none, *arity_parts]).astype(np.int32),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate([none, *length_parts]), dtype=np.int64)]),
    )


class WordNumbers(dict[bytes, int]):
    """Numbers each word when it is first asked for."""

    def __missing__(self, word: bytes) -> int:
        self[word] = number = len(self)
        return number


def numbered_words(texts: Sequence[str], word_number: WordNumbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words and brackets of all texts as numbers, and how many words and brackets each text has.

    Bytes are split, since only they split at the spaces of ASCII alone, as the other parsers do.
    """
    split = [
        text.encode("utf-8", "surrogatepass").replace(b"(", b" ( ").replace(b")", b" ) ").split() for text in texts
    ]
    num_words = np.array([len(words) for words in split], np.int64)
    numbers = map(word_number.__getitem__, itertools.chain.from_iterable(split))
    return np.fromiter(numbers, np.int64, int(num_words.sum())), num_words


def _decoded(word: bytes) -> str:
    return word.decode("utf-8", "surrogatepass")


def _is_bare(word: str) -> bool:
    """Whether the word is a label as it stands; one in quotes, or with a value behind ``=``, is not."""
    try:
        leaf = parse_brackets(word, first="child")
    except ParseError:
        return False
    return leaf.label == word


def sums_by_text(counted: NDArray[np.bool_], num_words: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many words of each text are counted."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(counted, dtype=np.int64)])
    end = np.cumsum(num_words)
    return total[end] - total[end - num_words]


def _first_wrong(word: NDArray[np.int64], num_words: NDArray[np.int64], bare: NDArray[np.bool_]) -> int | None:
    """The first text that is no tree of bare words in brackets of two; None where all are."""
    is_node = word != _OPEN
    num_nodes = sums_by_text(is_node, num_words)
    wrong = (num_nodes == 0) | (sums_by_text(~bare[word], num_words) > 0)
    whole = _whole(wrong)  # what follows needs a node in each text
    begin, arity = _arrays(word, is_node, num_words, num_nodes, whole)
    size = stack_sizes(arity, begin)
    lowest = np.minimum.reduceat(size, begin[:-1]) if whole else size
    wrong[:whole] |= (lowest < 1) | (size[begin[1:] - 1] != 1)

    whole = _whole(wrong)  # and this, nodes that make one tree in each
    begin, arity = _arrays(word, is_node, num_words, num_nodes, whole)
    opened_by_node = np.bincount(find_children(arity, begin).subtree_begin[arity > 0], minlength=len(arity))
    num_before = int(num_words[:whole].sum())
    node = np.cumsum(is_node[:num_before]) - is_node[:num_before]  # that each word is or stands before
    opens = np.bincount(node[~is_node[:num_before]], minlength=len(arity) + 1)
    text_of_node = np.repeat(np.arange(whole), num_nodes[:whole])
    misplaced = text_of_node[opens[:-1] != opened_by_node]
    ends_open = np.flatnonzero(word[np.cumsum(num_words[:whole]) - 1] == _OPEN)
    found = [*misplaced[:1].tolist(), *ends_open[:1].tolist(), *([whole] if whole < len(wrong) else [])]
    return min(found) if found else None


def _whole(wrong: NDArray[np.bool_]) -> int:
    """Number of texts before the first wrong one."""
    return int(np.argmax(wrong)) if wrong.any() else len(wrong)


def _arrays(
    word: NDArray[np.int64],
    is_node: NDArray[np.bool_],
    num_words: NDArray[np.int64],
    num_nodes: NDArray[np.int64],
    num_texts: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``begin`` and ``arity`` of the nodes of the first texts."""
    end = int(num_words[:num_texts].sum())
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(num_nodes[:num_texts])])
    return begin, np.where(word[:end][is_node[:end]] == _CLOSE, 2, 0)


def _explain(text: str, line: int, source: str, parse: Callable[[str], object] | None) -> NoReturn:
    """Raise what is wrong with a text that does not fit."""
    try:
        if parse is not None:
            parse(text)
        else:
            parse_brackets(text, first="child")
        _check_binary(text)
        raise ParseError("this is no tree of bare words in brackets of two", text)
    except ParseError as error:
        raise error.at(line, source) from error


def _check_binary(text: str) -> None:
    """Refuse what ``parse_brackets`` reads and a forest of bare words in brackets of two cannot hold."""
    pending: list[tuple[int, int]] = []
    children, opened = 0, 0
    for token in _TOKEN.finditer(text):
        if token.group() == "(":
            pending.append((children, opened))
            children, opened = 0, token.start()
            continue
        if token.group() == ")":
            if children != 2:
                raise ParseError(f"a bracket around {children} tree{'s' * (children != 1)}", text, opened, "two trees")
            children, opened = pending.pop()
        elif not _is_bare(token.group()):
            raise ParseError(f"the leaf {shorten(token.group())} is no bare word", text, token.start(), "a bare word")
        children += 1
