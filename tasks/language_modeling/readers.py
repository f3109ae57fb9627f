"""Read texts for language models: one sentence a line, words separated by spaces; or trees in brackets."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treemem.errors import ParseError, RecipeError, VocabularyError, near_names
from treemem.networks.sequences.language_model.layer import END
from treemem.records import open_source, text_lines
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.forest_files import DESCRIPTION
from treemem.trees.formats.penn import normalized, read_penn_trees
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.postorder import offsets
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

UNKNOWN = "<unk>"
"""The word that stands for unknown ones."""

LONGEST_LINE = 1_000_000
"""The most characters of a line."""

LINES = "lines"
"""What the trees of a prepared text have as data: their numbers of lines."""

_NAMES = {"train": ("train",), "validation": ("valid", "dev"), "test": ("test",)}
_SUFFIXES = (".txt", ".tokens", ".raw", ".txt.gz", ".tokens.gz")


class Corpus(NamedTuple):
    """A text with its words.

    Attributes:
        forest: a flat tree for each line, or the trees of a treebank; ``tree_data["split"]`` says of which part.
        vocabulary: ``<eos>`` and the words of the training text, in the order of their first places.
    """

    forest: Forest
    vocabulary: Vocabulary


def corpus_files(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the files of the three parts of a corpus, such as ``ptb.train.txt`` or ``wiki.valid.tokens``.

    Raises:
        RecipeError: a part has no file, or more than one.
    """
    place = Path(folder)
    if not place.is_dir():
        what = "is no folder" if place.exists() else "does not exist"
        raise RecipeError(f"{place} {what}; name the folder of a training, a validation and a test text")
    there = [file for file in sorted(place.iterdir()) if file.name.endswith(_SUFFIXES)]
    files = {}
    for split, names in _NAMES.items():
        matching = [file for file in there if any(name in file.name for name in names)]
        if len(matching) != 1:
            what = f"{len(matching)} files ({', '.join(file.name for file in matching)})" if matching else "no file"
            raise RecipeError(
                f"{place} has {what} of the {split} part; a corpus is a folder with one file each whose names contain "
                "train, valid and test and end in .txt, .tokens or .raw"
            )
        files[split] = matching[0]
    return files


def sentence_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line; a blank line is a sentence without words.

    Raises:
        RecipeError: no such file.
        ParseError: a line that is not UTF-8, or of more than a million characters; with file and line.
    """
    name = os.fspath(path)
    with open_source(path) as stream:
        for number, line, error in text_lines(stream):
            if error is not None:
                raise error.at(number, name)
            if len(line) > LONGEST_LINE:
                raise ParseError(
                    f"the line has {len(line):,} characters", line[:100], 0, f"a sentence of at most {LONGEST_LINE:,}"
                ).at(number, name)
            yield number, line.split()


def read_corpus(folder: str | os.PathLike[str], most_words: int | None = None) -> Corpus:
    """Read the training, validation and test text of a folder.

    Words that only the other parts have are read as ``<unk>``, if the vocabulary has it.

    Args:
        folder: see :func:`corpus_files`.
        most_words: size of the vocabulary without ``<eos>``; rarer words of the training text are read as ``<unk>``.
            None: all words of the training text.

    Raises:
        RecipeError: a missing file, or a part without words.
        ParseError: a line that cannot be read.
        VocabularyError: an unknown word, without ``<unk>`` in the vocabulary; with file and line.
    """
    table: dict[str, int] = {}
    number_of: dict[str, int] = {}
    label, length, lines = array("i"), array("q"), []
    for split, file in corpus_files(folder).items():
        first, first_line = len(label), len(length)
        for number, words in sentence_lines(file):
            length.append(len(words))
            if split == SPLITS[0]:
                label.extend([table.setdefault(word, len(table)) for word in words])
            else:
                label.extend(word_numbers(words, number_of, number, file))
        if len(label) == first:
            raise no_words(file, split)
        lines.append(len(length) - first_line)
        if split == SPLITS[0]:
            number_of, label = _kept(table, label, most_words)
    return Corpus(_forest(number_of, label, length, lines), vocabulary_of(number_of))


def word_numbers(words: list[str], number_of: Mapping[str, int], line: int, file: Path) -> list[int]:
    """Return the numbers of the words of a line; an unknown word has that of ``<unk>``.

    Raises:
        VocabularyError: an unknown word, without ``<unk>`` in the vocabulary; with file and line.
    """
    try:
        return [number_of[word] for word in words]
    except KeyError:
        unknown = number_of.get(UNKNOWN)
        if unknown is None:
            raise _unknown(words, number_of).at(line, str(file)) from None
        return [number_of.get(word, unknown) for word in words]


def no_words(file: Path, split: str) -> RecipeError:
    """Return the error of a part of a corpus without words."""
    return RecipeError(f"{file} has no words; the {split} part of a corpus needs some")


def is_prepared(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a text that :mod:`treemem.tasks.language_modeling.prepare` has written."""
    return (Path(folder) / DESCRIPTION).is_file()


def read_prepared(folder: str | os.PathLike[str], most_words: int | None = None) -> Corpus:
    """Map a prepared text into memory, with its words.

    Args:
        folder: see :func:`~treemem.tasks.language_modeling.prepare.prepare_corpus`.
        most_words: the most words of the vocabulary, which the folder must not exceed; None: any number.

    Raises:
        GraphError: the folder is not whole.
        RecipeError: it has a forest of another kind, or more words.
    """
    forest = Forest.load(Path(folder))
    if LINES not in forest.tree_data:
        raise RecipeError(f"the forest in {folder} is no prepared text; give a folder that prepare wrote")
    words = len(forest.labels) - 1
    if most_words is not None and words > most_words:
        raise RecipeError(
            f"{folder} was prepared with {words} words, more than task_options.words={most_words}; leave out "
            "task_options.words, or prepare the text with that number of words"
        )
    return Corpus(forest, vocabulary_of({word: number for number, word in enumerate(forest.labels)}))


def prepared_lines(forest: Forest) -> Iterator[tuple[str, list[str]]]:
    """Yield the split and the words of each line of a prepared text."""
    for split, begin, end in zip(forest.tree_data["split"].tolist(), forest.begin[:-1], forest.begin[1:], strict=True):
        words = [forest.labels[label] for label in forest.label[begin:end].tolist()]
        first = 0
        for last in (place for place, word in enumerate(words) if word == END):
            yield split, words[first:last]
            first = last + 1


def read_treebank(
    path: str | os.PathLike[str], most_words: int | None = None, more_text: str | os.PathLike[str] | None = None
) -> Corpus:
    """Read the training, validation and test trees of a folder or of one file, as :func:`read_corpus` reads texts.

    Words are in lower case, with ``N`` for each run of digits, as :func:`~treemem.trees.read_penn_trees` gives
    them; null elements are left out. A file whose name does not end in ``.txt`` is the Penn Treebank's: of its words,
    those stay that the published evaluation of parsers keeps, so punctuation goes.

    Args:
        path: see :func:`corpus_files`. The files have trees in brackets, whose words have a label each, such as
            ``(S (NP (DT the) (NN cat)) (VBZ sleeps))``. Or one such file: its last tenth is the test part, and the
            tenth before that is validation.
        most_words: see :func:`read_corpus`.
        more_text: a file of sentences, one a line, which come before the training trees; see :func:`treebank_words`.

    Raises:
        RecipeError: a missing file, or a part without trees.
        ParseError: a file that is not trees; with file and line.
        VocabularyError: an unknown word, without ``<unk>`` in the vocabulary; with file and number of the sentence.
    """
    parts = _divided(Path(path)) if Path(path).is_file() else _trees_of_parts(path)
    forests = [Forest.from_trees(part.trees, tree_data={"split": [part.split] * len(part.trees)}) for part in parts]
    if more_text is not None:
        sentences = [words for _, line in sentence_lines(more_text) if (words := treebank_words(line))]
        text = Forest.from_sequences(sentences)
        forests.insert(0, text.with_data(tree_data={"split": [SPLITS[0]] * len(text)}))
    forest = Forest.concatenate(forests)
    is_leaf = forest.arity == 0
    in_training = np.repeat(forest.tree_data["split"] == SPLITS[0], np.diff(forest.begin))
    training = forest.label[is_leaf & in_training]
    used, first = np.unique(training, return_index=True)
    table = {forest.labels[label]: number for number, label in enumerate(used[np.argsort(first)])}
    number_in_table = np.zeros(len(forest.labels), np.int32)
    number_in_table[used[np.argsort(first)]] = np.arange(len(used))
    number_of, _ = _kept(table, array("i", number_in_table[training].tobytes()), most_words)
    if UNKNOWN not in number_of:
        for part in parts:
            _check_known(part, number_of)
    names = {name: number for number, name in enumerate(dict.fromkeys([*forest.labels, UNKNOWN]))}
    of_leaf = np.array([names[name if name in number_of else UNKNOWN] for name in forest.labels], np.int32)
    label = np.where(is_leaf, of_leaf[forest.label], forest.label)
    return Corpus(
        Forest(tuple(names), label, forest.arity, forest.begin, tree_data=forest.tree_data), vocabulary_of(number_of)
    )


class _Part(NamedTuple):
    """The trees of a part, and the file and the number of the first one in it, from 1."""

    split: str
    trees: list[Tree]
    file: Path
    first: int = 1


def _trees_of_parts(folder: str | os.PathLike[str]) -> list[_Part]:
    return [_Part(split, read_penn_trees(file, tags=None), file) for split, file in corpus_files(folder).items()]


def _divided(file: Path) -> list[_Part]:
    is_text = file.name.removesuffix(".gz").endswith(".txt")
    trees = read_penn_trees(file, tags=None) if is_text else read_penn_trees(file)
    size = len(trees) // 10
    if not size:
        raise RecipeError(f"{file} has {len(trees)} sentences; a tenth of them is the test part, so it needs ten")
    begins = [0, len(trees) - 2 * size, len(trees) - size, len(trees)]
    return [
        _Part(split, trees[begin:end], file, 1 + begin)
        for split, (begin, end) in zip(SPLITS, pairwise(begins), strict=True)
    ]


def _check_known(part: _Part, number_of: dict[str, int]) -> None:
    for number, tree in enumerate(part.trees, start=part.first):
        words = [leaf.label for leaf in tree.leaves()]
        if any(word not in number_of for word in words):
            error = _unknown(words, number_of)
            problem = f"sentence {number}: {error.problem}"
            raise VocabularyError(problem, error.text, error.offset, source=str(part.file))


_CLITIC = re.compile(r"(?<=\w)(?=n't$|'(?:s|m|d|ll|re|ve)$)|(?<=can)(?=not$)|(?<=s)(?='$)", re.IGNORECASE)
_SIGNS = frozenset("%&")  # which the Penn Treebank counts as words


def treebank_words(tokens: Iterable[str]) -> list[str]:
    """Return tokens of a text as the words of the Penn Treebank that the published evaluation of parsers keeps.

    Contractions and possessives are two words, punctuation goes, and words are in lower case with ``N`` for each run of
    digits.

    Example:
        >>> treebank_words("`` Don't , '' the boys' 12 friends cannot say .".split())
        ['do', "n't", 'the', 'boys', "'", 'N', 'friends', 'can', 'not', 'say']
    """
    return [
        normalized(word)
        for token in tokens
        if token in _SIGNS or any(map(str.isalnum, token))
        for word in _CLITIC.split(token)
    ]


def vocabulary_of(words: Mapping[str, int]) -> Vocabulary:
    """Return the vocabulary of ``<eos>`` and some words, in their order."""
    leaves = [END, *(word for word in words if word != END)]
    return Vocabulary(leaves, [], unknown=UNKNOWN if UNKNOWN in words else None)


def _unknown(words: list[str], known: Mapping[str, int]) -> VocabularyError:
    word = next(word for word in words if word not in known)
    problem = (
        f"the word {word!r:.60} is not in the training text, which has no {UNKNOWN} either{near_names(word, known)}; "
        f"replace it, or limit the vocabulary to fewer than {len(known)} words (words=N), which adds {UNKNOWN}"
    )
    before = words[: words.index(word)]
    return VocabularyError(problem, " ".join(words), len(" ".join([*before, ""])))


def _kept(table: dict[str, int], label: array[int], most_words: int | None) -> tuple[dict[str, int], array[int]]:
    """Return the numbers of the words of the vocabulary, and the training text in these numbers."""
    counts = np.bincount(np.frombuffer(label, np.int32), minlength=len(table))
    number_of = kept_words(dict(zip(table, counts.tolist(), strict=True)), most_words)
    unknown = number_of.get(UNKNOWN, -1)
    renumbered = np.array([number_of.get(word, unknown) for word in table], np.int32)
    return number_of, array("i", renumbered[np.frombuffer(label, np.int32)].tobytes())


def kept_words(count: Mapping[str, int], most_words: int | None) -> dict[str, int]:
    """Return the numbers of the words of the vocabulary, from 0.

    Args:
        count: how often the training text has each word, in the order of their first places.
        most_words: see :func:`read_corpus`.
    """
    kept = list(count)
    words = Counter(dict(count))
    has_end = words.pop(END, None) is not None  # a word that every vocabulary knows, beside the others
    if most_words is not None and len(words) > most_words:
        place = {word: number for number, word in enumerate(count)}
        common = [word for word, _ in words.most_common(most_words)]
        if UNKNOWN not in count:
            common.pop()
        elif UNKNOWN not in common:
            common[-1] = UNKNOWN
        common += [END] * has_end
        kept = [UNKNOWN] * (UNKNOWN not in count) + sorted(common, key=place.__getitem__)
    return {word: number for number, word in enumerate(kept)}


def _forest(words: dict[str, int], label: array[int], length: array[int], lines: list[int]) -> Forest:
    """Return a flat tree for each line."""
    lengths = np.frombuffer(length, np.int64)
    begin = offsets(lengths + 1)
    is_word = np.ones(int(begin[-1]), bool)
    is_word[begin[1:] - 1] = False
    table = {**words, SEQUENCE: words.get(SEQUENCE, len(words))}
    labels, arity = np.full(len(is_word), table[SEQUENCE], np.int32), np.zeros(len(is_word), np.int32)
    labels[is_word] = np.frombuffer(label, np.int32)
    arity[~is_word] = lengths
    return Forest(tuple(table), labels, arity, begin, tree_data={"split": np.repeat(SPLITS, lines)})
