"""Read minimal pairs: a grammatical sentence and an ungrammatical one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treemem.errors import ParseError, RecipeError, VocabularyError, near_names
from treemem.records import Record, read_records
from treemem.tasks.language_modeling.generation.english import MinimalPair
from treemem.tasks.syntactic_evaluation.published import compared, row_of
from treemem.trees.formats.record_reader import header_with
from treemem.trees.vocabulary import Vocabulary

FIELDS = ("good", "bad", "construction")
_SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl", ".ndjson", ".parquet")


def read_pairs(
    path: str | os.PathLike[str], vocabulary: Vocabulary | None = None, *, stop: bool = False
) -> list[MinimalPair]:
    """Return the minimal pairs of a file, or of all files of a folder in the order of their names.

    A line is ``GOOD<TAB>BAD`` or ``GOOD<TAB>BAD<TAB>CONSTRUCTION``; records of CSV, JSONL or Parquet have these fields.
    Without a construction, it is the name of the file. Files of Marvin & Linzen 2018 are known by their names, and
    their records by the field ``key``: their constructions are the rows of the published table. A record with a field
    ``intrusive`` is three pairs.

    Args:
        path: a file, or a folder.
        vocabulary: of the model, if unknown words are to be refused; a vocabulary with an unknown word refuses none.
        stop: whether to write words in lower case, and ``.`` after each sentence, as the published evaluation does.

    Raises:
        RecipeError: no such file, or no pair in it.
        ParseError: a record without two sentences, or with two equal ones; with file and line.
        VocabularyError: an unknown word; with file and line.
    """
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = [file for file in sorted(place.iterdir()) if file.name.removesuffix(".gz").endswith(_SUFFIXES)]
    pairs = [pair for file in files for pair in _pairs_of(file, vocabulary, stop)]
    if not pairs:
        raise RecipeError(f"there are no minimal pairs in {place}; a line is GOOD<TAB>BAD")
    return pairs


def _pairs_of(file: Path, vocabulary: Vocabulary | None, stop: bool) -> Iterator[MinimalPair]:
    name = Path(file.name.removesuffix(".gz")).stem
    known = None if vocabulary is None or vocabulary.unknown is not None else frozenset(vocabulary.leaves)
    header_of = header_with((*FIELDS, "intrusive"), FIELDS[:1])
    for record in read_records(file, text_fields=FIELDS, header_of=header_of, one_of=FIELDS[:1], skip_blank_lines=True):
        try:
            sides = ("good", "intrusive", "bad") if "intrusive" in record.fields else ("good", "bad")
            sentences = [_words(record.fields, side, known, stop) for side in sides]
            made = compared(_construction(name, record), sentences)
            for pair in made:
                if pair.good == pair.bad:
                    raise ParseError("both sentences are the same", " ".join(pair.good), 0, "two different sentences")
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, str(file)) from error
        yield from made


def _construction(name: str, record: Record) -> str:
    given = record.fields.get("construction")
    return str(given) if given else row_of(name, str(record.fields.get("key", "")))


def _words(fields: dict[str, Any], side: str, known: frozenset[str] | None, stop: bool) -> tuple[str, ...]:
    text = fields.get(side)
    if not isinstance(text, str) or not text.split():
        raise ParseError(f"the {side} sentence is missing", expected="GOOD<TAB>BAD, words separated by spaces")
    words = [*text.lower().split(), "."] if stop else text.split()
    for word in words:
        if known is not None and word not in known:
            problem = f"unknown word {word!r:.60} in the {side} sentence{near_names(word, known)}"
            place = re.search(rf"(?<!\S){re.escape(word)}(?!\S)", text, re.IGNORECASE if stop else 0)
            raise VocabularyError(problem, text, place.start() if place else len(text))
    return tuple(words)
