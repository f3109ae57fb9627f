"""Trees whose nodes point at their parents: CoNLL-U, and files of words and parent pointers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from treemem.errors import GraphError, ParseError
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree, tree_from_postorder

WordField = Literal["form", "lemma", "upos", "xpos", "deprel"]

_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_EXPECTED = "ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS and MISC, with a tab between"
_ID = re.compile(r"([1-9][0-9]*)|[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")
_POINTER = re.compile(r"-1|[0-9]+")
_SEPARATOR = re.compile(r"[ |\t]+")
_ROOT, _LEFT_OUT = 0, -1


def tree_of_heads(labels: Sequence[str], heads: Sequence[int], order: Sequence[int] | None = None) -> Tree:
    """Return the tree of nodes that each name their parent.

    Args:
        labels: of the nodes, which are numbered from 1.
        heads: the parent of each node; 0 for the root, -1 for a node that is left out.
        order: what the children of a node are sorted by; by default their numbers.

    Raises:
        GraphError: there is not one root, a parent does not exist, or nodes are their own ancestors.
    """
    roots = [node for node, head in enumerate(heads, start=1) if head == _ROOT]
    if len(roots) != 1:
        places = f": {', '.join(map(str, roots[:5]))}" if roots else ""
        raise GraphError(f"{len(roots)} nodes are roots (their head is 0){places}; a tree has one")
    children: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    count = 0
    for node, head in enumerate(heads, start=1):
        if head == _LEFT_OUT:
            continue
        if not 0 <= head <= len(heads) or (head and heads[head - 1] == _LEFT_OUT):
            raise GraphError(f"the head of node {node} is {head}, which is no node of the tree")
        children[head].append(node)
        count += 1
    nodes, pending = [], roots
    while pending:
        node = pending.pop()
        nodes.append(node)
        below = children[node]
        pending.extend(below if order is None else sorted(below, key=order.__getitem__))
    if len(nodes) < count:
        node = min({node for node, head in enumerate(heads, start=1) if head != _LEFT_OUT} - {*nodes})
        raise GraphError(f"node {node} is not below the root; its heads go round in a circle")
    nodes.reverse()
    return tree_from_postorder([labels[node - 1] for node in nodes], [len(children[node]) for node in nodes])


def parse_conllu(text: str, field: WordField = "form", *, edges: bool = False) -> Tree:
    """Read one sentence of CoNLL-U: each word is a node, and its children are its dependents in the order of the words.

    Lines of multiword tokens (``1-2``) and of empty nodes (``8.1``) are left out: only words are nodes of the basic
    tree (https://universaldependencies.org/format.html).

    Args:
        text: the lines of the sentence, with or without comments.
        field: the column that is the label of a node.
        edges: whether each word has a node of its own above it, with its relation as label.

    Raises:
        ParseError: the text is not one sentence, a word has no head, or the words make no tree.

    Example:
        >>> rows = "1 cats cat NOUN _ _ 2 nsubj _ _", "2 sleep sleep VERB _ _ 0 root _ _"
        >>> text = chr(10).join(row.replace(" ", chr(9)) for row in rows)
        >>> str(parse_conllu(text)), str(parse_conllu(text, "lemma", edges=True))
        ('(sleep cats)', '(root (sleep (nsubj cat)))')
    """
    column = _COLUMNS.index(field)
    labels: list[str] = []
    heads: list[int] = []
    relations: list[str] = []
    has_field, offset, ended = False, 0, False
    for line in text.split("\n"):
        begin, offset = offset, offset + len(line) + 1
        line = line.removesuffix("\r")
        if not line.strip():
            ended = bool(labels)
            continue
        if ended:
            raise ParseError("a second sentence", text, begin, "one sentence; read_trees reads a file of many")
        if line[0] == "#":
            continue
        cells = line.split("\t")
        if len(cells) != len(_COLUMNS) or (kind := _ID.fullmatch(cells[0])) is None or "" in cells:
            what = f"{len(cells)} columns" if len(cells) != len(_COLUMNS) else "an empty column"
            what = what if "" in cells or len(cells) != len(_COLUMNS) else f"the ID {shorten(cells[0])}"
            raise ParseError(what, text, begin, _EXPECTED)
        if kind[1] is None:
            continue
        if int(kind[1]) != len(labels) + 1:
            raise ParseError(f"the word {kind[1]} follows the word {len(labels)}", text, begin, "words from 1 on")
        if not cells[6].isascii() or not cells[6].isdecimal():
            what = f"the head of the word {kind[1]} is {shorten(cells[6])}"
            raise ParseError(what, text, begin, "the number of a word, or 0 for the root")
        labels.append(cells[column])
        heads.append(int(cells[6]))
        relations.append(cells[7])
        has_field = has_field or cells[column] != "_" or cells[1] == "_"
    if not labels:
        raise ParseError("there is no word", text, 0, _EXPECTED)
    if not has_field or (edges and set(relations) == {"_"}):
        missing = field if not has_field else "deprel"
        raise ParseError(f"no word has a {missing}", text, 0, f"a column {missing.upper()} that is not _")
    try:
        tree = tree_of_heads(labels, heads)
        if not edges:
            return tree
        count = len(heads)
        return tree_of_heads([*relations, *labels], [*(head and head + count for head in heads), *range(1, count + 1)])
    except GraphError as error:
        raise ParseError(str(error), text, 0, "a sentence whose words make one tree") from error


def format_conllu(tree: Tree, field: WordField = "form", *, edges: bool = False) -> str:
    """Return the lines of a sentence with this tree, as :func:`parse_conllu` reads them.

    The words are numbered from the root down, since a tree does not say where a word stands among its dependents.

    Raises:
        GraphError: a label that no column can hold; or with ``edges``, words and relations do not alternate.
    """
    lines: list[str] = []
    pending: list[tuple[Tree, int]] = [(tree, 0)]
    while pending:
        node, head = pending.pop()
        cells = ["_"] * len(_COLUMNS)
        if edges:
            if node.arity != 1:
                raise GraphError(f"the relation {shorten(node.label)} has {node.arity} children; it has one, a word")
            cells[7] = _cell(node.label)
            node = node.children[0]
        cells[0], cells[6] = str(len(lines) + 1), str(head)
        cells[_COLUMNS.index(field)] = _cell(node.label)
        lines.append("\t".join(cells))
        pending.extend((child, len(lines)) for child in reversed(node.children))
    return "\n".join(lines)


def parse_parents(text: str) -> Tree:
    """Read a line of words and a line of parent pointers, from 1, with a space or ``|`` between.

    The first pointers are those of the words. Further ones are those of nodes without words, which get the label ``X``.
    0 points at no node: that is the root. -1 is a word outside of the tree, as in the files of Tai et al. 2015.

    Raises:
        ParseError: the text is not two such lines, or they make no tree.

    Example:
        >>> dependencies, phrases = ("the cats sleep", "2 3 0"), ("a|b|c", "4|4|5|5|0")
        >>> tuple(str(parse_parents(chr(10).join(lines))) for lines in (dependencies, phrases))
        ('(sleep (cats the))', '(X (X a b) c)')
    """
    lines = text.rstrip().split("\n")
    if len(lines) != 2:
        what = f"{len(lines)} line{'s' * (len(lines) > 1)}"
        raise ParseError(what, text, 0, "a line of words and a line of parent pointers")
    words, pointers = (_SEPARATOR.split(line.strip()) for line in lines)
    odd = next((pointer for pointer in pointers if not _POINTER.fullmatch(pointer)), None)
    if odd is not None or len(pointers) < len(words):
        what = f"{len(pointers)} pointers for {len(words)} words" if odd is None else f"the pointer {shorten(odd)}"
        raise ParseError(what, text, len(lines[0]) + 1, "a number for each word: that of its parent, or 0")
    heads = [int(pointer) for pointer in pointers]
    labels = words + [CONSTITUENT] * (len(heads) - len(words))
    try:
        return tree_of_heads(labels, heads, None if len(heads) == len(words) else _first_words(heads, len(words)))
    except GraphError as error:
        raise ParseError(str(error), text, len(lines[0]) + 1, "pointers that make one tree") from error


def is_pointers(line: str) -> bool:
    """Whether a line has parent pointers, or other whole numbers, and nothing else."""
    return all(_POINTER.fullmatch(word) for word in _SEPARATOR.split(line.strip()))


def format_parents(tree: Tree) -> str:
    """Return a line with all labels of a tree, from the root down, and one with their parent pointers.

    Raises:
        GraphError: a label with a space or ``|``.
    """
    labels: list[str] = []
    heads: list[str] = []
    pending: list[tuple[Tree, int]] = [(tree, 0)]
    while pending:
        node, head = pending.pop()
        if not node.label or _SEPARATOR.search(node.label) or node.label.split() != [node.label]:
            raise GraphError(f"{shorten(node.label)} is no word: it is empty, or has a space or '|'")
        labels.append(node.label)
        heads.append(str(head))
        pending.extend((child, len(labels)) for child in reversed(node.children))
    return f"{' '.join(labels)}\n{' '.join(heads)}"


def _first_words(heads: Sequence[int], num_words: int) -> list[int]:
    """Return for each node, from 1, what its siblings are sorted by: the first word at or below it."""
    first = [*range(num_words + 1), *[len(heads)] * (len(heads) - num_words)]
    for word in range(1, num_words + 1):
        node = heads[word - 1]
        while num_words < node <= len(heads) and first[node] > word:
            first[node] = word
            node = heads[node - 1]
    return first


def _cell(label: str) -> str:
    if not label or label != label.strip("\r\n\t") or any(sign in label for sign in "\t\n\r"):
        raise GraphError(f"{shorten(label)} cannot stand in a column: it is empty, or has a tab or the end of a line")
    return label
