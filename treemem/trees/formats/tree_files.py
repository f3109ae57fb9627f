"""Files of trees in any form."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError
from treemem.records import open_source, text_lines
from treemem.trees.formats.dependencies import is_pointers
from treemem.trees.formats.forms import Line, TextForm, divided
from treemem.trees.formats.text_forms import TextReader, checked_form
from treemem.trees.tree import Tree

_WORDS = ("{stem}.toks", "sents.toks", "SOStr.txt")


def texts_of(path: str | os.PathLike[str], form: TextForm) -> Iterator[Line]:
    """Yield the texts of a file, one for each tree, with the lines on which they begin.

    Args:
        path: a file, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
        form: of the texts. ``"parents"`` reads the words from a file beside this one: ``NAME.toks``, ``sents.toks`` or
            ``SOStr.txt``; without one, the lines of this file are words and pointers in turn.

    Raises:
        RecipeError: there is no such form or file, or the file of words has another number of lines.
        ParseError: the file is not UTF-8 or damaged.
    """
    entry = checked_form(form)
    words = _file_of_words(path) if form == "parents" else None
    lines = _lines_of(path) if words is None else _side_by_side(words, path)
    if form == "parents" and words is None:
        lines = _with_words(lines, path)
    yield from divided(entry, lines)


def read_trees(
    path: str | os.PathLike[str], form: TextForm = "brackets", *, number: str | None = None
) -> Iterator[Tree]:
    """Yield the trees of a file, one after the other, so that a file may be larger than the memory.

    Args:
        path: a file, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
        form: how trees are written in it, one of :data:`~treemem.trees.formats.forms.FORMS`. Each line is a tree; in
            CoNLL-U each sentence; in s-expressions, Newick and the Penn Treebank each expression. A file of Python is
            one tree, and so is one of JSON or XML whose first line is not a tree. A line of ``"prefix"`` may be two
            trees with a tab between, a problem and its solution.
        number: the label of leaves that keep numbers as values; by default numbers are labels.

    Raises:
        RecipeError: there is no such form or file, no tree in it, or the first brackets look unlabelled.
        ParseError, GraphError, VocabularyError: a text that is no tree; with file and line.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "trees.nwk")
        >>> _ = file.write_text("(A,B);((A,B),C);")
        >>> [str(tree) for tree in read_trees(file, "newick")]
        ['(X A B)', '(X (X A B) C)']
    """
    reader, name = TextReader(form, number), os.fspath(path)
    trees = _parsed(texts_of(path, form), reader, name)
    first = list(itertools.islice(trees, _WATCHED if form == "brackets" else 1))
    if not first:
        raise RecipeError(f"there is no tree in {name}; the form {form!r} needs texts such as {_example(form)}")
    if form == "brackets":
        from treemem.trees.forest import Forest  # which imports this package

        reader.check_brackets(Forest.from_trees(first))
    yield from first
    yield from trees


_WATCHED = 1000
"""How many trees of a file show whether its brackets have labels."""


def _parsed(texts: Iterable[Line], reader: TextReader, name: str) -> Iterator[Tree]:
    for line, text in texts:
        try:
            yield reader.parse(text)
        except (ParseError, VocabularyError) as error:
            raise error.at(line, name) from error
        except GraphError as error:
            raise GraphError(f"{name}, line {line}: {error}") from error


def _example(form: str) -> str:
    return " / ".join(checked_form(form).example.split("\n"))


def _lines_of(path: str | os.PathLike[str]) -> Iterator[Line]:
    name = os.fspath(path)
    with open_source(path) as stream:
        for number, line, error in text_lines(stream):
            if error is not None:
                raise error.at(number, name)
            yield number, line


def _files_of_words(path: str | os.PathLike[str]) -> list[Path]:
    place = Path(path)
    packed = place.suffix if place.suffix == ".gz" else ""
    stem = Path(place.name.removesuffix(packed)).stem
    return [place.with_name(f"{name.format(stem=stem)}{packed}") for name in _WORDS]


def _file_of_words(path: str | os.PathLike[str]) -> Path | None:
    return next((file for file in _files_of_words(path) if file.is_file() and file != Path(path)), None)


def _with_words(lines: Iterable[Line], path: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield the lines of a file of words and pointers in turn.

    Raises:
        RecipeError: the first line has numbers alone, so the file seems to have pointers without words.
    """
    is_first = True
    for number, line in lines:
        if is_first and line.strip():
            if is_pointers(line):
                names = ", ".join(file.name for file in _files_of_words(path))
                raise RecipeError(
                    f"{os.fspath(path)}, line {number}: numbers where words are expected, and no file of words beside "
                    f"it; put the words into one of {names}"
                )
            is_first = False
        yield number, line


def _side_by_side(words: Path, pointers: str | os.PathLike[str]) -> Iterator[Line]:
    """Yield the lines of both files in turn, with the numbers of the second."""
    pairs = itertools.zip_longest(_lines_of(words), _lines_of(pointers))
    for one, other in pairs:
        if one is None or other is None:
            raise RecipeError(
                f"{os.fspath(pointers)} and {words} have different numbers of lines; each has one for a tree"
            )
        if bool(one[1].strip()) != bool(other[1].strip()):
            raise ParseError(f"an empty line beside one of {words}", line=other[0], source=os.fspath(pointers))
        yield other[0], one[1]
        yield other
