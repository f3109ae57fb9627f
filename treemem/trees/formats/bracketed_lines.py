"""Read many binary trees in brackets, one a text, straight into the arrays of a forest.

In post-order, the nodes of ``( ( a b ) c )`` are its words with each ``)`` as a node of two children: ``a b ) c )``.
What remains is to check that the ``(`` stand where the ``)`` say.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT, has_escapes, parse_brackets
from treemem.trees.formats.label_text import VALUE_SUFFIX
from treemem.trees.formats.source_text import shorten
from treemem.trees.postorder import find_children, offsets, stack_sizes

_TEXTS_AT_ONCE = 8192
_OPEN, _CLOSE = 0, 1
_TOKEN = re.compile(r"[()]|[^ \t\r\n\f\v()]+")


class Words(NamedTuple):
    """The words and brackets of some texts.

    Attributes:
        number: int64 ``[words]``, the number of each word.
        begin: int64 ``[texts + 1]``; text ``i`` has the words ``begin[i]`` to ``begin[i + 1] - 1``.
    """

    number: NDArray[np.int64]
    begin: NDArray[np.int64]

    def count_by_text(self, counted: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many words of each text are counted; int64 ``[texts]``."""
        return np.diff(offsets(counted)[self.begin])


class WordNumbers(dict[bytes, int]):
    """Numbers each word when it is first asked for."""

    def __missing__(self, word: bytes) -> int:
        self[word] = number = len(self)
        return number


def forest_of_bracketed(
    texts: Sequence[str],
    *,
    source: str = "",
    first_line: int = 1,
    lines: Sequence[int] | None = None,
    parse: Callable[[str], object] | None = None,
) -> Forest:
    """Read texts such as ``( a ( and b ) )``: words without quotes or values, two trees in each bracket.

    The trees are those of :func:`~treemem.trees.parse_brackets` with ``first="child"``; this reads millions
    of words a second.

    Args:
        texts: one tree each.
        source: the file's name, for messages.
        first_line: the line of the first text.
        lines: the line of each text, if they do not follow one another.
        parse: a parser that explains what is wrong with a bad text; by default ``parse_brackets``.

    Returns:
        One tree for each text. Inner nodes have the label ``X`` and two children.

    Raises:
        ParseError: the first bad text, with its line.

    Example:
        >>> [str(tree) for tree in forest_of_bracketed(["( a ( and b ) )", "a"])]
        ['(X a (X and b))', 'a']
    """
    word_number = WordNumbers({b"(": _OPEN, b")": _CLOSE})
    bare = [True, True]

    def are_trees(chunk: Sequence[str], words: Words) -> bool:
        bare.extend(_is_bare(_decoded(name)) for name in itertools.islice(word_number, len(bare), None))
        return all(bare) and _are_binary(words) and _are_plain(chunk)

    def explain(text: str) -> None:
        if parse is not None:
            parse(text)
        _check_binary(text)

    label_parts, arity_parts, length_parts = [], [], []
    for words in read_words(
        texts, word_number, "()", are_trees, explain, source=source, first_line=first_line, lines=lines
    ):
        is_node = words.number != _OPEN
        label_parts.append(words.number[is_node])
        arity_parts.append(2 * (words.number[is_node] == _CLOSE))
        length_parts.append(words.count_by_text(is_node))
    leaves = [_decoded(name) for name in itertools.islice(word_number, 2, None)]
    labels = tuple(dict.fromkeys([CONSTITUENT, *leaves]))
    place = {label: index for index, label in enumerate(labels)}
    label_of_word = np.array([0, *(place[label] for label in (CONSTITUENT, *leaves))], np.int32)
    none = np.empty(0, np.int64)
    return Forest(
        labels,
        label_of_word[np.concatenate([none, *label_parts])],
        np.concatenate([none, *arity_parts]).astype(np.int32),
        offsets(np.concatenate([none, *length_parts])),
    )


def read_words(
    texts: Sequence[str],
    word_number: WordNumbers,
    marks: str,
    are_well_formed: Callable[[Sequence[str], Words], bool],
    check: Callable[[str], object],
    *,
    source: str,
    first_line: int,
    lines: Sequence[int] | None,
) -> Iterator[Words]:
    """Yield the words of all texts, some thousands of texts at a time.

    Args:
        texts: what to read.
        word_number: the number of each word.
        marks: characters that are words of their own, with or without spaces around them.
        are_well_formed: whether all texts are good; given some texts and their words.
        check: raises ``ParseError`` for a bad text; called only to find the first bad one.
        source, first_line, lines: where the texts stand; see :func:`forest_of_bracketed`.

    Raises:
        ParseError: the first bad text, with its line.
    """
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = texts[first : first + _TEXTS_AT_ONCE]
        if all(isinstance(text, str) for text in chunk):
            words = _split(chunk, word_number, marks)
            if are_well_formed(chunk, words):
                yield words
                continue
        for place, text in enumerate(chunk, start=first):
            try:
                if not isinstance(text, str):
                    raise ParseError(f"a text must be a str, not {type(text).__name__}")
                check(text)
            except ParseError as error:
                raise error.at(first_line + place if lines is None else lines[place], source) from error
        raise AssertionError("the parser reads texts that the arrays refuse")


def _split(texts: Sequence[str], word_number: WordNumbers, marks: str) -> Words:
    """Number the words of texts. Bytes are split because they split at the spaces of ASCII only, as parsers do."""
    split = []
    spaced = [(b"%c" % mark, b" %c " % mark) for mark in marks.encode()]
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass").removeprefix(codecs.BOM_UTF8)
        for mark, with_spaces in spaced:
            encoded = encoded.replace(mark, with_spaces)
        split.append(encoded.split())
    begin = offsets([len(words) for words in split])
    numbers = map(word_number.__getitem__, itertools.chain.from_iterable(split))
    return Words(np.fromiter(numbers, np.int64, int(begin[-1])), begin)


def _decoded(word: bytes) -> str:
    return word.decode("utf-8", "surrogatepass")


def _is_bare(word: str) -> bool:
    """Whether the word is a label as it stands, without quotes and without a value after ``=``."""
    value = VALUE_SUFFIX.search(word) if "=" in word else None
    return (word[0] != '"' or word == '"') and (value is None or value.start() == 0)


def _are_plain(texts: Sequence[str]) -> bool:
    joined = " ".join(texts)
    if not any(mark in joined for mark in ('"', "\\", ",(", "),")):
        return all(text.isalnum() or "(" in text or _is_plain(text) for text in texts)
    return all(map(_is_plain, texts))


def _is_plain(text: str) -> bool:
    """Whether the parser reads a text as its words, of which each is a label."""
    if not any(mark in text for mark in ('"', "\\", ",(", "),")) and ("(" in text or text.strip().isalnum()):
        return True
    try:
        _check_binary(text)
    except ParseError:
        return False
    return True


def _are_binary(words: Words) -> bool:
    """Whether every text is a tree with two trees in each bracket."""
    is_node = words.number != _OPEN
    num_nodes = words.count_by_text(is_node)
    if not num_nodes.all():
        return False
    begin, arity = offsets(num_nodes), np.where(words.number[is_node] == _CLOSE, 2, 0)
    size = stack_sizes(arity, begin)
    if (size < 1).any() or (size[begin[1:] - 1] != 1).any():
        return False
    expected = np.bincount(find_children(arity, begin).subtree_begin[arity > 0], minlength=len(arity))
    node = np.cumsum(is_node) - is_node  # that each word is or stands before
    opened = np.bincount(node[~is_node], minlength=len(arity))
    ends_closed = words.number[words.begin[1:] - 1] != _OPEN
    return bool(ends_closed.all()) and np.array_equal(opened, expected)


def _check_binary(text: str) -> None:
    """Raise what is wrong with a text that is not a tree of bare words with two trees in each bracket."""
    parse_brackets(text, first="child")
    text = text.removeprefix("\ufeff")
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
    if has_escapes(text):
        raise ParseError("a label in quotes, or a bracket after a backslash", text, 0, "bare words")
