"""Read documents, queries and answers from texts, files, and folders in the published form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from treemem.errors import ParseError, RecipeError
from treemem.records import read_source
from treemem.tasks.reading.documents import PLACEHOLDER
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.source_text import decode_source
from treemem.trees.pairs import PairReader
from treemem.trees.tree import Tree

FOLDERS = {"training": "train", "validation": "validation", "test": "test"}
"""The folders of the published form, and the split that each of them is."""
_SUFFIX = ".question"
_SECTIONS = ("url", "context", "question", "answer", "entity mapping")


def forest_of_sentences(sentences: Iterable[Sequence[str]]) -> Forest:
    """Return sentences as binary trees over their words that branch to the right."""
    table = {CONSTITUENT: 0}
    label: list[int] = []
    arity: list[int] = []
    begin = [0]
    for words in sentences:
        label += [table.setdefault(word, len(table)) for word in words] + [0] * (len(words) - 1)
        arity += [0] * len(words) + [2] * (len(words) - 1)
        begin.append(len(label))
    return Forest(tuple(table), np.array(label, np.int32), np.array(arity, np.int32), np.array(begin, np.int64))


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


def question_files(folder: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """Return the files ``*.question`` of the folders ``training``, ``validation`` and ``test``, by their splits.

    Raises:
        RecipeError: a folder has no such file.
    """
    files = {}
    for name, split in FOLDERS.items():
        files[split] = sorted((Path(folder) / name).glob(f"*{_SUFFIX}"))
        if not files[split]:
            raise RecipeError(
                f"{Path(folder) / name} has no files *{_SUFFIX}; give the folder of the published questions, with "
                f"{', '.join(FOLDERS)}, or a file with document, query, answer and split"
            )
    return files


def read_published(file: Path) -> dict[str, str]:
    """Return the fields of a file in the published form.

    Raises:
        ParseError: the file has another form.
    """
    return published_fields(decode_source(read_source(file)))


@dataclass
class QuestionRecords(PairReader):
    """Reads documents and queries from records, with or without answers. A text line is ``DOCUMENT<TAB>QUERY``."""

    unit: ClassVar[str] = "texts"
    text_fields: ClassVar[tuple[str, ...]] = ("document", "query", "answer")
    sides: ClassVar[tuple[tuple[str, str], ...]] = (("document", "query"), ("context", "question"))

    def texts(self, fields: Mapping[str, Any]) -> list[str]:
        """Return document and query.

        Raises:
            ParseError: one of them is missing or empty, or the query has no placeholder.
        """
        texts = super().texts(fields)
        for text, side in zip(texts, self.text_sides, strict=True):
            if not text.strip():
                raise ParseError(f"the {side} is empty", text, 0, "words separated by spaces")
        if PLACEHOLDER not in texts[1].split():
            raise ParseError(f"the query has no {PLACEHOLDER}", texts[1], 0, f"{PLACEHOLDER} in place of the answer")
        return texts

    def trees(self, texts: Sequence[str]) -> list[Tree]:
        return list(self.forest(texts))

    def forest(self, texts: Sequence[str], source: str = "", lines: Sequence[int] | None = None) -> Forest:
        return forest_of_sentences(text.split() for text in texts)
