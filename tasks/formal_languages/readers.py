"""Read inputs, and inputs with their outputs, from texts and files."""

from __future__ import annotations

import os

import numpy as np

from treemem.errors import ParseError, RecipeError, VocabularyError
from treemem.records import read_records
from treemem.tasks.formal_languages.languages import BLANK, Language, Words
from treemem.tasks.transduction.readers import FIELDS, SourceRecords, forest_of_pairs, words_of
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import header_with, split_of, text_of
from treemem.trees.tree import Tree


def asked(language: Language, source: Words, target: Words) -> tuple[Words, Words]:
    """Return the example of an input and its output, which need not be the correct one.

    Raises:
        ParseError: an output of another length than the input's.
    """
    places = len(source) if language.blanks is None else language.blanks(len(source))
    if len(target) > places or (language.blanks is None and len(target) < places):
        raise ParseError(f"an input of {len(source)} symbols has {places} outputs, not {len(target)}")
    before = [] if language.blanks is None else [BLANK] * len(source)
    return language.padded(source), before + target + [BLANK] * (places - len(target))


class InputRecords(SourceRecords):
    """Reads inputs; those that are given as trees get their blanks too."""

    def checked_tree(self, tree: Tree) -> Tree:
        symbols = [child.label for child in super().checked_tree(tree).children]
        return self.parse(" ".join(symbol for symbol in symbols if symbol != BLANK))


def read_forest(path: str | os.PathLike[str], language: Language, *, format: str | None = None) -> Forest:
    """Return the examples of a file; ``tree_data["split"]`` holds the field ``split``, if there is one.

    If the first record has no target, the result is the inputs alone, as flat trees.

    Args:
        path: a file with the fields ``source`` and ``target``, or of lines ``SOURCE<TAB>TARGET``.
        language: the kind.
        format: as :func:`~treemem.records.read_records` takes it.

    Raises:
        RecipeError: there is no such file, or no example in it.
        ParseError: a record without an input or an output, or with outputs that do not fit; with its line.
        VocabularyError: an unknown symbol; with its line.
    """
    examples: list[tuple[Words, Words]] = []
    sources: list[Words] = []
    splits, name = [], os.fspath(path)
    known = header_with(FIELDS, FIELDS[:1])
    for record in read_records(path, format=format, text_fields=FIELDS, header_of=known, one_of=FIELDS):
        try:
            source = words_of(text_of(record.fields, FIELDS[:1]), language.symbols)
            if sources or (not examples and record.fields.get("target") is None):
                sources.append(language.padded(source))
            else:
                target = words_of(text_of(record.fields, FIELDS[1:]), language.outputs, "target")
                examples.append(asked(language, source, target))
            splits.append(split_of(record.fields))
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, name) from error
    if not splits:
        raise RecipeError(f"there are no examples in {name}")
    forest = Forest.from_sequences(sources) if sources else forest_of_pairs(examples, end=())
    return forest.with_data(tree_data={"split": np.array(splits)}) if any(splits) else forest
