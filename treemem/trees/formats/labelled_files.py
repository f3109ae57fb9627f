"""Read files of labelled examples."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError
from treemem.records import Record, read_records
from treemem.trees.formats.record_reader import RecordReader, split_of

Read = TypeVar("Read")
_logger = logging.getLogger(__name__)


def read_labelled(
    source: str | os.PathLike[str],
    reader: RecordReader,
    read: Callable[[Record], Read | None],
    what: str,
    *,
    format: str | None = None,
    skip_blank_lines: bool = True,
) -> tuple[list[Read], dict[str, NDArray[Any]]]:
    """Return what ``read`` returns for each record of a file, and the column ``split`` if a record has this field.

    Args:
        source: a path, or ``"-"`` for standard input; a name that ends in ``.gz`` is unpacked.
        reader: of the task, which knows the fields and the headers of its files.
        read: returns the example of a record; None leaves the record out. The log says how many these are.
        what: the examples are, in the plural, for the error of a file without any.
        format: ``"text"``, ``"csv"``, ``"jsonl"`` or ``"parquet"``; told from the name by default.
        skip_blank_lines: of text.

    Raises:
        RecipeError: there is no such file, or no example in it.
        ParseError, VocabularyError, GraphError: a record that is no example, or with an unknown split; with file and
            line.
    """
    examples, splits, name, num_left_out = [], [], os.fspath(source), 0
    for record in read_records(
        source,
        format=format,
        text_fields=reader.text_fields,
        header_of=reader.header_of,
        one_of=reader.example_fields,
        skip_blank_lines=skip_blank_lines,
    ):
        try:
            example = read(record)
            if example is None:
                num_left_out += 1
            else:
                examples.append(example)
                splits.append(split_of(record.fields))
        except (ParseError, VocabularyError) as error:
            raise error.at(record.line, name) from error
        except GraphError as error:
            raise GraphError(f"{name}, line {record.line}: {error}") from error
    if num_left_out:
        _logger.info(
            "%s: %d of %d %s are left out, since their labels are undecided",
            name, num_left_out, num_left_out + len(examples), what,
        )  # fmt: skip
    if not examples:
        raise RecipeError(f"there are no {what} in {name}")
    return examples, {"split": np.array(splits)} if any(splits) else {}
