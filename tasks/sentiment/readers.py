"""Read the folder of the treebank, and vectors of words from text files."""

from __future__ import annotations

import functools
import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError, RecipeError
from treemem.records import LONGEST_LINE, open_source, read_array
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.sentiment import read_sentiment_trees
from treemem.trees.tree import Tree

_LARGEST = float(np.finfo(np.float32).max)
_ROWS_AT_ONCE = 4096
_MOST_DIGITS = 9  # of the width of vectors
FILES = {"train": "train.txt", "validation": "dev.txt", "test": "test.txt"}


def treebank_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of the training, validation and test sentences."""
    return [Path(folder) / name for name in FILES.values()]


def read_treebank(folder: str | os.PathLike[str]) -> Forest:
    """Return the trees of ``train.txt``, ``dev.txt`` and ``test.txt``.

    Returns:
        The trees; ``node_data["class"]`` has the class of each node, from 0 to 4, and ``tree_data["split"]`` the split.

    Raises:
        RecipeError: a file is missing or has no tree.
        ParseError: a line is not a tree; with file and line.
    """
    parts = []
    for path in treebank_files(folder):
        if not path.is_file():
            raise RecipeError(
                f"there is no file {path}; the folder needs train.txt, dev.txt and test.txt of the Stanford Sentiment "
                "Treebank, in brackets such as (3 (2 It) (4 (2 works) (2 .))). Search for trainDevTestTrees_PTB.zip"
            )
        parts.append(read_sentiment_trees(path))
    forest = Forest.concatenate(parts)
    return forest.with_data(
        node_data=forest.node_data, tree_data={"split": np.repeat([*FILES], [len(part) for part in parts])}
    )


def lower_cased(forest: Forest) -> Forest:
    """Return the trees with words in lower case."""
    table: dict[str, int] = {CONSTITUENT: 0}
    lowered = np.array([table.setdefault(label.lower(), len(table)) for label in forest.labels], np.int32)
    label = np.where(forest.arity == 0, lowered[forest.label], 0).astype(np.int32)
    return Forest(
        tuple(table), label, forest.arity, forest.begin, node_data=forest.node_data, tree_data=forest.tree_data
    )


def format_sentiment(tree: Tree, classes: Sequence[int]) -> str:
    """Return a tree in the brackets of the treebank.

    Args:
        tree: whose leaves are words.
        classes: of its nodes, in post-order.
    """
    pending: list[str] = []
    for node, number in zip(tree.postorder(), classes, strict=True):
        if node.is_leaf:
            pending.append(f"({number} {node.label})")
        else:
            pending[-node.arity :] = [f"({number} {' '.join(pending[-node.arity :])})"]
    return pending[0]


class FoundVectors(NamedTuple):
    """The vectors that a file has of some words.

    Attributes:
        words: those found, with their rows.
        vectors: float32 ``[words, width]``.
    """

    words: dict[str, int]
    vectors: NDArray[np.float32]


def read_word_vectors(path: str | os.PathLike[str], wanted: Container[str]) -> FoundVectors:
    """Return the vectors of some words from a text file of GloVe or word2vec.

    A line is a word and its numbers, separated by spaces. A first line of two whole numbers is the header of word2vec.
    The file is read as a stream, so that only the wanted vectors take memory. A word that is there twice has its first
    vector.

    Args:
        path: of the file; a name that ends in ``.gz`` is unpacked.
        wanted: words to keep.

    Raises:
        RecipeError: no such file, or it has no vector of a wanted word.
        ParseError: a line of another width, or with a vector that is not finite numbers; with file and line.
    """
    name = os.fspath(path)
    words: dict[str, int] = {}
    rows: list[list[float]] = []
    width, has_vectors = 0, False
    with open_source(path) as stream:
        for number, raw in enumerate(iter(functools.partial(stream.readline, LONGEST_LINE), b""), start=1):
            if len(raw) == LONGEST_LINE:
                raise ParseError(f"the line has {LONGEST_LINE:,} bytes or more", expected="a word and its numbers").at(
                    number, name
                )
            line = raw.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").rstrip(b" \r\n")
            if not line:
                continue
            spaces = line.count(b" ")
            if number == 1 and spaces == 1 and all(part.isdigit() for part in line.split(b" ")):
                digits = line.split(b" ")[1].lstrip(b"0")
                if len(digits) > _MOST_DIGITS:
                    raise ParseError(f"a header with a width of {len(digits)} digits").at(number, name)
                width = int(digits or b"0")
                continue
            has_vectors = True
            width = width or spaces
            if spaces < width or not width:
                raise ParseError(f"{spaces} numbers after the word", expected=f"{width or 'some'}").at(number, name)
            word = line.rsplit(b" ", width)[0] if spaces > width else line.partition(b" ")[0]
            text = word.decode("utf-8", "replace")
            if spaces > width and _is_number(word.rpartition(b" ")[2]):
                raise ParseError(f"more than {width} numbers after the word", expected=f"{width}").at(number, name)
            if text not in wanted or text in words:
                continue
            try:
                values = [float(part) for part in line[len(word) + 1 :].split(b" ")]
            except ValueError:
                values = []
            if not values or not all(abs(value) <= _LARGEST for value in values):  # not of nan either
                raise ParseError(f"the vector of {text!r:.60} is not {width} finite numbers").at(number, name)
            words[text] = len(rows)
            rows.append(values)
    if not has_vectors:
        raise RecipeError(f"there are no vectors in {name}; a line is a word and its numbers, separated by spaces")
    if not words:
        raise RecipeError(f"no word has a vector in {name}; give another file, or look at task_options.lower")
    return FoundVectors(words, np.array(rows, np.float32).reshape(len(rows), width))


def map_contextual_vectors(path: str | os.PathLike[str], num_words: int) -> NDArray[np.floating]:
    """Return the array ``[words, width]`` of a file of NumPy, mapped into memory.

    Args:
        path: of the file (``.npy``).
        num_words: how many vectors it must have.

    Raises:
        RecipeError: no such file, another format, another shape or number type, or a number that is not finite.
    """
    try:
        vectors = read_array(path)
    except ParseError as error:
        problem = f"{os.fspath(path)} is no array of NumPy ({error.problem})"
        raise RecipeError(f"{problem}; write one with numpy.save(path, array)") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise RecipeError(f"{os.fspath(path)} must have one array of floating-point numbers, [words, width]")
    if len(vectors) != num_words or not vectors.shape[1]:
        raise RecipeError(
            f"{os.fspath(path)} has {list(vectors.shape)} numbers, and train.txt, dev.txt and test.txt have "
            f"{num_words} words; it needs a row for each word, in their order"
        )
    for begin in range(0, num_words, _ROWS_AT_ONCE):
        is_finite = np.isfinite(vectors[begin : begin + _ROWS_AT_ONCE]).all(1)
        if not is_finite.all():
            raise RecipeError(f"row {begin + int(is_finite.argmin()) + 1} of {os.fspath(path)} is not finite")
    return vectors


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
