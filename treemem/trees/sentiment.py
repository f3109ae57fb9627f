"""Read the Stanford Sentiment Treebank: binary trees with a class at every node."""

from __future__ import annotations

import json
import os
import re

import numpy as np

from treemem.errors import ParseError, RecipeError
from treemem.records import open_source
from treemem.records.reader import text_lines
from treemem.trees.brackets import CONSTITUENT, parse_brackets
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

_PRETERMINAL = re.compile(r"\(([0-4]) ([^ \t\r\n\f\v()]+)\)")
_CLASS_OR_END = re.compile(r"\(([0-9]+)|\)")
_EXPECTED = "a class from 0 to 4 and a word, or a class and two phrases"


def read_sentiment_trees(path: str | os.PathLike[str]) -> Forest:
    """Return the trees of a file with lines such as ``(3 (2 It) (4 (2 works) (2 .)))``.

    A word is a leaf; every phrase of several words is a node ``X`` with two children.

    Returns:
        The trees; ``node_data["class"]`` holds the class of each word and phrase, int64 from 0 (very negative) to 4.

    Raises:
        RecipeError: no such file, or no tree in it.
        ParseError: a line that is no such tree; with file and line.
    """
    trees: list[Tree] = []
    classes: list[int] = []
    name = os.fspath(path)
    with open_source(path) as stream:
        for number, line, unreadable in text_lines(stream):
            if unreadable is not None:
                raise unreadable.at(number, name)
            if not line.strip():
                continue
            try:
                tree, own = parse_sentiment_tree(line)
            except ParseError as error:
                raise error.at(number, name) from error
            trees.append(tree)
            classes += own
    if not trees:
        raise RecipeError(f"there is no tree in {name}; it needs lines such as (3 (2 It) (4 (2 works) (2 .)))")
    return Forest.from_trees(trees, node_data={"class": np.array(classes, np.int64)})


def parse_sentiment_tree(line: str) -> tuple[Tree, list[int]]:
    """Return the tree of a line and the class of each node, in post-order.

    Raises:
        ParseError: the line is no such tree.
    """
    words = _PRETERMINAL.findall(line)
    text = _PRETERMINAL.sub(lambda found: json.dumps(found[2]), line)
    try:
        tree = parse_brackets(text)
    except ParseError:
        parse_brackets(line)  # whose columns are those of the line
        raise
    pending: list[Tree] = []
    num_leaves = 0
    for node in tree.postorder():
        if node.is_leaf:
            num_leaves += 1
            pending.append(node)
            continue
        if node.label not in ("0", "1", "2", "3", "4") or node.arity != 2:
            raise ParseError(f"the node {node.label!r:.40} has {node.arity} parts", line, 0, _EXPECTED)
        pending[-2:] = [Tree(CONSTITUENT, pending[-2:])]
    if num_leaves != len(words):
        raise ParseError(f"{num_leaves} words, and {len(words)} of them have a class", line, 0, _EXPECTED)
    return pending[0], _classes_in_postorder(line)


def _classes_in_postorder(line: str) -> list[int]:
    """Return the class of every node of a bracketed tree, in the node order of a forest."""
    classes, open_classes = [], []
    for token in _CLASS_OR_END.finditer(line):
        if token[1] is not None:
            open_classes.append(int(token[1]))
        else:
            classes.append(open_classes.pop())
    return classes
