"""Prepare a text for language models that train from its file, so that it need not fit into memory.

``python -m treemem.tasks.language_modeling.prepare TEXTS -o FOLDER`` numbers the words of the texts of a folder.
``task_options.path=FOLDER`` then trains on them as on the texts themselves, with the same numbers.

``FOLDER`` holds a :class:`~treemem.trees.Forest`. A tree is some lines, one after the other: its nodes are their words
in order, with ``<eos>`` after each line, and the last ``<eos>`` is its root. So the array ``label`` is the whole text.
"""

from __future__ import annotations

import argparse
import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import TreememError, for_commands
from treemem.records import check_writable, writing
from treemem.tasks.language_modeling.data import LanguageDataOptions
from treemem.tasks.language_modeling.readers import (
    LINES,
    corpus_files,
    kept_words,
    no_words,
    sentence_lines,
    vocabulary_of,
    word_numbers,
)
from treemem.tasks.language_modeling.task import LanguageModeling
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.postorder import offsets

TREE_WORDS = 1_000_000
"""The words of a tree, or a line more."""


def prepare_corpus(
    texts: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    most_words: int | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write the training, validation and test text of a folder as numbers, in bounded memory.

    The text is read twice, a line at a time. Only the different words of the training text are in memory.

    Args:
        texts: see :func:`~treemem.tasks.language_modeling.readers.corpus_files`.
        folder: to write; 8 bytes for each word and line. On the way as much again is needed, in it or, if there is no
            such folder yet, in the one above.
        most_words: see :func:`~treemem.tasks.language_modeling.readers.read_corpus`.
        overwrite: whether ``folder`` may have files.

    Raises:
        RecipeError: a missing file, a part without words, or ``folder`` cannot be written.
        ParseError, VocabularyError: as ``read_corpus``.
    """
    place = check_writable(folder, overwrite=overwrite, is_folder=True, source=texts)
    files = corpus_files(texts)
    count: Counter[str] = Counter()
    for _, words in sentence_lines(files[SPLITS[0]]):
        count.update(words)
    number_of = kept_words(count, most_words)
    leaves = vocabulary_of(number_of).leaves
    label_of = {word: label for label, word in enumerate(leaves)}
    labels = np.array([*(label_of[word] for word in number_of), 0], np.int32)  # the last one is <eos>
    sizes, lines, splits = [], [], []
    with writing(place):
        there = place if place.is_dir() else place.parent  # a text that is refused leaves no folder behind
        with TemporaryFile(dir=there) as label, TemporaryFile(dir=there) as arity:
            for split, file in files.items():
                for numbers, num_lines in _trees(file, split, number_of):
                    label.write(labels[numbers].data)
                    arity.seek(4 * (len(numbers) - 1), os.SEEK_CUR)
                    arity.write(np.int32(len(numbers) - 1))
                    sizes.append(len(numbers))
                    lines.append(num_lines)
                    splits.append(split)
            label.flush()
            arity.flush()
            Forest(
                leaves,
                np.memmap(label, np.int32, "r"),
                np.memmap(arity, np.int32, "r"),
                offsets(sizes),
                tree_data={"split": np.array(splits), LINES: np.array(lines)},
            ).save(place)


def _trees(file: Path, split: str, number_of: Mapping[str, int]) -> Iterator[tuple[NDArray[np.int32], int]]:
    """Yield the numbers of the nodes of each tree, in which ``<eos>`` is the last number, and its lines."""
    number, lines, has_words = array("i"), 0, False
    for line, words in sentence_lines(file):
        number.extend(word_numbers(words, number_of, line, file))
        number.append(len(number_of))
        lines += 1
        has_words |= bool(words)
        if len(number) >= TREE_WORDS:
            yield np.frombuffer(number, np.int32), lines
            number, lines = array("i"), 0
    if not has_words:
        raise no_words(file, split)
    if lines:
        yield np.frombuffer(number, np.int32), lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare a text and print what it has. Return 2 if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m treemem.tasks.language_modeling.prepare",
        description="Number the words of a text, so that language models train from its file.",
    )
    parser.add_argument("texts", metavar="TEXTS", help="a folder with a training, validation and test text")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="to write, for task_options.path")
    parser.add_argument("--words", type=int, help="the most words of the vocabulary (all of the training text)")
    parser.add_argument("--overwrite", action="store_true", help="replace what FOLDER has")
    options = parser.parse_args(arguments)
    try:
        if options.words is not None:
            checked_count("--words", options.words)
        prepare_corpus(options.texts, options.output, options.words, overwrite=options.overwrite)
        print(LanguageModeling(path=options.output).make_data(LanguageDataOptions()).card, end="")
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
