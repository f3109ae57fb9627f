"""Read the Stanford Sentiment Treebank: binary trees with a class at every node."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np

from treemem.errors import ParseError, RecipeError
from treemem.records import open_source, text_lines
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import shorten
from treemem.trees.postorder import offsets

_TOKEN = re.compile(
    r"""\(([0-4])[ ]([^ \t\r\n\f\v()]+)\)  # a word and its class
      | \(([^ \t\r\n\f\v()]*)
      | \)
      | [^ \t\r\n\f\v()]+""",
    re.VERBOSE,
)
_CLASSES = frozenset("01234")
_EXPECTED = "a class from 0 to 4 and a word, or a class and two phrases"

SentimentNodes = list[tuple[str | None, int]]
"""The word, or None for a phrase, and the class of each node of a tree, in post-order."""


def read_sentiment_trees(path: str | os.PathLike[str]) -> Forest:
    """Return the trees of a file with lines such as ``(3 (2 It) (4 (2 works) (2 .)))``.

    A word is a leaf; every phrase of several words is a node ``X`` with two children.

    Returns:
        The trees; ``node_data["class"]`` holds the class of each word and phrase, int64 from 0 (very negative) to 4.

    Raises:
        RecipeError: no such file, or no tree in it.
        ParseError: a line that is no such tree; with file and line.
    """
    trees: list[SentimentNodes] = []
    name = os.fspath(path)
    with open_source(path) as stream:
        for number, line, unreadable in text_lines(stream):
            if unreadable is not None:
                raise unreadable.at(number, name)
            if not line.strip():
                continue
            try:
                trees.append(parse_sentiment_tree(line))
            except ParseError as error:
                raise error.at(number, name) from error
    if not trees:
        raise RecipeError(f"there is no tree in {name}; it needs lines such as (3 (2 It) (4 (2 works) (2 .)))")
    return sentiment_forest(trees)


def sentiment_forest(trees: Sequence[SentimentNodes]) -> Forest:
    """Return trees as a forest, with the class of each node as ``node_data["class"]``, int64."""
    table: dict[str, int] = {}
    nodes = [node for tree in trees for node in tree]
    label = [table.setdefault(CONSTITUENT if word is None else word, len(table)) for word, _ in nodes]
    return Forest(
        tuple(table),
        np.array(label, np.int32),
        np.array([2 * (word is None) for word, _ in nodes], np.int32),
        offsets([len(tree) for tree in trees]),
        node_data={"class": np.array([number for _, number in nodes], np.int64)},
    )


def parse_sentiment_tree(line: str) -> SentimentNodes:
    """Return the nodes of the tree of a line.

    Raises:
        ParseError: the line is no such tree.
    """
    nodes: SentimentNodes = []
    pending: list[tuple[str, int]] = []  # the class of each open bracket, and where it stands
    parts: list[int] = []
    bare: list[int] = []
    for token in _TOKEN.finditer(line):
        if nodes and not pending:
            problem = f"{shorten(token[0])} after the end of the tree"
            raise ParseError(problem, line, token.start(), "the end of the text")
        number, word, opened = token.groups()
        if word is not None:
            nodes.append((word, int(number)))
        elif opened is not None:
            pending.append((opened, token.start()))
            parts.append(0)
            continue
        elif token[0] != ")":
            bare.append(token.start())
            nodes.append((token[0], -1))
        elif not pending:
            raise ParseError("')' closes no node", line, token.start(), _EXPECTED)
        else:
            (name, begin), arity = pending.pop(), parts.pop()
            if name not in _CLASSES or arity != 2:
                raise ParseError(f"the node {name!r:.40} has {arity} parts", line, begin, _EXPECTED)
            nodes.append((None, int(name)))
        if parts:
            parts[-1] += 1
    if pending:
        raise ParseError("the bracket is not closed", line, pending[-1][1], "')'")
    if not nodes:
        raise ParseError("the text is empty", line, 0, _EXPECTED)
    if bare:
        num_words = (len(nodes) + 1) // 2
        problem = f"{num_words} words, and {num_words - len(bare)} of them have a class"
        raise ParseError(problem, line, bare[0], _EXPECTED)
    return nodes
