"""Read trees of the Penn Treebank's bracketed files."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from treemem.errors import ParseError, RecipeError
from treemem.records import read_source
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Tree

_TAGS = """
CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH
VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB
"""
WORD_TAGS = frozenset(_TAGS.split())
"""The parts of speech that are words. Punctuation, ``$``, ``#`` and null elements have others."""

_TOKEN = re.compile(r"[()]|[^ \t\r\n\f\v()]+")
_DIGITS = re.compile(r"[0-9]+")
_FUNCTION_TAG = re.compile(r"(?<=.)[-=|].*")


def read_penn_trees(
    path: str | os.PathLike[str], *, tags: Collection[str] | None = WORD_TAGS, normalize: bool = True
) -> list[Tree]:
    """Return the trees of a bracketed file, or of all ``.mrg`` files below a folder in the order of their names.

    The defaults are the published evaluation of unsupervised parsers: only words with one of ``WORD_TAGS`` stay, in
    lower case and with ``N`` for each run of digits. Parts of speech and function tags (``-SBJ``) are left out. A node
    over one word is that word; a node over several words stays, even if it has one child. Sentences without words are
    left out.

    Args:
        path: a file, in which a tree may span lines, or a folder.
        tags: the parts of speech to keep; None: all but null elements, ``-NONE-``.
        normalize: whether to write words in lower case and digits as ``N``.

    Raises:
        RecipeError: no such file, a folder without ``.mrg`` files, or no sentence with words.
        ParseError: a file that is not trees; with file, line and column.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "one.mrg")
        >>> _ = file.write_text("( (S (NP-SBJ (DT The) (NNS cats)) (VP (VBD slept)) (. .)) )")
        >>> str(read_penn_trees(file)[0])
        '(S (NP the cats) slept)'
    """
    place = Path(path)
    files = sorted(place.rglob("*.mrg")) if place.is_dir() else [place]
    if not files:
        raise RecipeError(f"there is no .mrg file below {place}; name the folder of the bracketed files, or one file")
    trees = [tree for file in files for tree in _trees_of(file, tags, normalize)]
    if not trees:
        tagged = "a word" if tags is None else "a word whose part of speech is one of the Penn Treebank's"
        raise RecipeError(f"there is no sentence with {tagged} in {place}; other trees need a name that ends in .txt")
    return trees


def normalized(word: str) -> str:
    """Return a word in lower case, with ``N`` for each run of digits."""
    return _DIGITS.sub("N", word.lower())


class _Open:
    """A node whose bracket is not closed yet."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.label = ""
        self.word: str | None = None
        self.children: list[Tree] = []
        self.num_nodes = 0


def parse_penn(text: str) -> Tree:
    """Return the tree of one sentence in the brackets of the Penn Treebank, with all its words as they are.

    Parts of speech, function tags and null elements are left out, as by :func:`read_penn_trees` with ``tags=None``.

    Raises:
        ParseError: the text is not one sentence with words.

    Example:
        >>> str(parse_penn("( (S (NP-SBJ (DT The) (NNS cats)) (VP (VBD slept)) (. .)) )"))
        '(S (NP The cats) slept .)'
    """
    trees = list(_trees_in(text, "", None, normalize=False))
    if len(trees) != 1:
        problem = f"{len(trees)} sentences with words" if trees else "no word in brackets with its part of speech"
        raise ParseError(problem, text, 0, "one sentence, such as ( (S (NP (PRP I)) (VP (VBP go))) )")
    return trees[0]


def _trees_of(file: Path, tags: Collection[str] | None, normalize: bool) -> Iterator[Tree]:
    content = read_source(file).removeprefix(codecs.BOM_UTF8)
    try:
        text = decode_source(content)
    except ParseError as error:
        raise ParseError(error.problem, error.text, error.offset, error.expected, source=str(file)) from error
    return _trees_in(text, str(file), tags, normalize)


def _trees_in(text: str, source: str, tags: Collection[str] | None, normalize: bool) -> Iterator[Tree]:
    def wrong(problem: str, offset: int, expected: str) -> ParseError:
        return ParseError(problem, text, offset, expected, source=source)

    pending: list[_Open] = []
    after_open = False
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word == "(":
            if pending and pending[-1].word is not None:
                raise wrong("a bracket after the word of a node", token.start(), "')'")
            pending.append(_Open(token.start()))
            after_open = True
            continue
        if not pending:
            raise wrong("')' closes no node" if word == ")" else "a word outside of all brackets", token.start(), "'('")
        node = pending[-1]
        if word != ")":
            if after_open:
                node.label = word
            elif node.num_nodes or node.word is not None:
                raise wrong(f"the node {node.label!r:.40} has a second word, or one beside nodes", token.start(), "')'")
            else:
                node.word = word
            after_open = False
            continue
        if node.word is None and not node.num_nodes:
            raise wrong("a node without words or nodes", node.offset, "a part of speech and a word, or nodes")
        after_open = False
        pending.pop()
        made = _made(node, tags, normalize)
        if pending:
            pending[-1].num_nodes += 1
            pending[-1].children += made
        else:
            yield from made
    if pending:
        raise wrong("the bracket is not closed", pending[-1].offset, "')' before the end of the file")


def _made(node: _Open, tags: Collection[str] | None, normalize: bool) -> list[Tree]:
    """Return the tree of a node; nothing if it has no words left."""
    if node.word is not None:
        if node.label == "-NONE-" if tags is None else node.label not in tags:
            return []
        return [Tree(normalized(node.word) if normalize else node.word)]
    if not node.children or (len(node.children) == 1 and (node.children[0].is_leaf or not node.label)):
        return node.children
    return [Tree(_FUNCTION_TAG.sub("", node.label) or CONSTITUENT, node.children)]
