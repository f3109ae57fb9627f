"""Read documents, queries and answers from texts, files, and folders in the published form."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from treemem.errors import ParseError, RecipeError, VocabularyError, near_names, shown
from treemem.records import read_records, read_source
from treemem.tasks.reading.documents import PLACEHOLDER
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.record_reader import header_with, is_missing, split_of, text_of
from treemem.trees.formats.source_text import decode_source
from treemem.trees.pairs import PAIR, PairReader
from treemem.trees.tree import Node, Tree, tree_nodes

FIELDS = (("document", "query"), ("context", "question"))
"""Names of document and query; the first pair of fields that a record has counts."""
FOLDERS = {"training": "train", "validation": "validation", "test": "test"}
"""The folders of the published form, and the split that each of them is."""
_SUFFIX = ".question"
_SECTIONS = ("url", "context", "question", "answer", "entity mapping")


def words_of(document: str, query: str) -> list[list[str]]:
    """Return the words of document and query, which are separated by spaces.

    Raises:
        ParseError: one of them is empty, or the query has no placeholder.
    """
    sides = [document.split(), query.split()]
    for text, words, side in zip((document, query), sides, FIELDS[0], strict=True):
        if not words:
            raise ParseError(f"the {side} is empty", text, 0, "words separated by spaces")
    if PLACEHOLDER not in sides[1]:
        raise ParseError(f"the query has no {PLACEHOLDER}", query, 0, f"{PLACEHOLDER} in place of the answer")
    return sides


def forest_of_questions(questions: Iterable[Sequence[Sequence[str]]]) -> Forest:
    """Return documents and queries, adjacent, as binary trees over their words that branch to the right."""
    table = {CONSTITUENT: 0}
    label: list[int] = []
    arity: list[int] = []
    begin = [0]
    for words in itertools.chain.from_iterable(questions):
        label += [table.setdefault(word, len(table)) for word in words] + [0] * (len(words) - 1)
        arity += [0] * len(words) + [2] * (len(words) - 1)
        begin.append(len(label))
    return Forest(tuple(table), np.array(label, np.int32), np.array(arity, np.int32), np.array(begin, np.int64))


def question_tree(document: str, query: str) -> Tree:
    """Return a question as a tree whose root joins document and query. Raises as :func:`words_of`."""
    return Tree(PAIR, list(forest_of_questions([words_of(document, query)])))


def _fields_of(fields: Mapping[str, Any]) -> list[str]:
    names = next((names for names in FIELDS if fields.get(names[0]) is not None), FIELDS[0])
    return [text_of(fields, [name]) for name in names]


def published_fields(text: str) -> dict[str, str]:
    """Return the fields of a file in the published form: url, context, question, answer and entity mapping.

    Raises:
        ParseError: there are fewer sections, which empty lines separate.
    """
    sections = text.strip().split("\n\n")
    if len(sections) < len(_SECTIONS) - 1:
        expected = f"{', '.join(_SECTIONS)}, with empty lines between them"
        raise ParseError(f"the file has {len(sections)} sections", expected=expected)
    return dict(zip(_SECTIONS, sections, strict=False))


class Questions:
    """Collects questions to a forest.

    Args:
        markers: the entity markers.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self._number = {marker: place for place, marker in enumerate(markers)}
        self._words: list[list[list[str]]] = []
        self._labels: list[int] = []
        self._splits: list[str] = []

    def __len__(self) -> int:
        return len(self._words)

    def add(self, fields: Mapping[str, Any], split: str | None = None) -> None:
        """Add the question of a record.

        Raises:
            ParseError: no document or query, or an answer that is no entity marker.
        """
        words = words_of(*_fields_of(fields))
        answer = None if is_missing(fields.get("answer")) else fields["answer"]
        if isinstance(answer, str):
            answer = answer.strip() or None
        if answer is not None and (not isinstance(answer, str) or answer not in self._number):
            raise ParseError(
                f"the answer is {shown(answer, 50)}{near_names(shown(answer, 50), self._number)}",
                expected=f"one of the {len(self._number)} markers @entity0, ... (task_options.num_entities)",
            )
        self._words.append(words)
        self._labels.append(-1 if answer is None else self._number[answer])
        self._splits.append(split or split_of(fields))

    def forest(self) -> Forest:
        """Return documents and queries, adjacent; ``tree_data`` has ``label`` and ``split`` for each of the two."""
        data: dict[str, Any] = {"label": np.repeat(np.array(self._labels, np.int64), 2)}
        if any(self._splits):
            data["split"] = np.repeat(self._splits, 2)
        return forest_of_questions(self._words).with_data(tree_data=data)


def read_file(path: str | os.PathLike[str], markers: Sequence[str], *, format: str | None = None) -> Forest:
    """Return the questions of a file: documents and queries, adjacent.

    ``tree_data`` has one entry for the document and one for the query: ``label``, the number of the answer's marker (-1
    if the record has none), and ``split`` if there is one.

    Args:
        path: a file with the fields ``document``, ``query`` (or ``context``, ``question``) and ``answer``; or of lines
            ``DOCUMENT<TAB>QUERY<TAB>ANSWER``.
        markers: the entity markers.
        format: as :func:`~treemem.records.read_records` takes it.

    Raises:
        RecipeError: there is no such file, or no question in it.
        ParseError: a record that is no question, with its line.
    """
    questions, name = Questions(markers), os.fspath(path)
    one_of = tuple(itertools.chain.from_iterable(FIELDS))
    names = QuestionRecords.text_fields
    known = header_with(names, one_of)
    for record in read_records(
        path, format=format, text_fields=names, header_of=known, one_of=one_of, skip_blank_lines=True
    ):
        try:
            questions.add(record.fields)
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, name) from error
    if not len(questions):
        raise RecipeError(f"there are no questions in {name}")
    return questions.forest()


def read_folder(folder: str | os.PathLike[str], markers: Sequence[str]) -> Forest:
    """Return the questions of the folders ``training``, ``validation`` and ``test``, a file ``*.question`` each.

    Raises:
        RecipeError: a folder has no such file.
        ParseError: a file that is no question.
    """
    questions = Questions(markers)
    for name, split in FOLDERS.items():
        files = sorted((Path(folder) / name).glob(f"*{_SUFFIX}"))
        if not files:
            raise RecipeError(
                f"{Path(folder) / name} has no files *{_SUFFIX}; give the folder of the published questions, with "
                f"{', '.join(FOLDERS)}, or a file with document, query, answer and split"
            )
        for file in files:
            try:
                questions.add(published_fields(decode_source(read_source(file))), split)
            except (ParseError, VocabularyError) as error:
                raise error.at(1, str(file)) from error
    return questions.forest()


@dataclass
class QuestionRecords(PairReader):
    """Reads documents and queries from records, with or without answers. A text line is ``DOCUMENT<TAB>QUERY``."""

    text_fields: ClassVar[tuple[str, ...]] = (*FIELDS[0], "answer")
    example_fields: ClassVar[tuple[str, ...]] = tuple(itertools.chain.from_iterable(FIELDS))
    unit: ClassVar[str] = "texts"

    def nodes(self, fields: Mapping[str, Any]) -> list[Node]:
        return tree_nodes(question_tree(*_fields_of(fields)))
