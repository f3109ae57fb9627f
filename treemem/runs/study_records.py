"""The records of a study: reading them, and what they hold in a packed form."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.errors import ParseError
from treemem.metrics.score import Score, column_scores, row_group, row_score
from treemem.records import check_writable, locked, read_records, write_records, writing


def read_study(results: str | Path, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the records of a file; an empty list if there is no file.

    Args:
        results: the file.
        fields: that each record must have.

    Raises:
        ParseError: a line is no record, or lacks a field.
    """
    if not Path(results).exists():
        return []
    records = []
    for record in read_records(results):
        missing = [field for field in fields if record.fields.get(field) is None]
        if missing:
            problem = f"this record has no {' and no '.join(missing)}"
            raise ParseError(problem, expected="a record of this study", line=record.line, source=str(results))
        records.append(record.fields)
    return records


def add_records(
    results: Path,
    added: Sequence[Mapping[str, Any]],
    by: Sequence[str],
    *,
    merged: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]] | None = None,
    order: Sequence[Any] = (),
) -> list[dict[str, Any]]:
    """Add records to a file, which is made if it is absent, and return all its records. Other writers wait.

    Args:
        results: the file.
        added: the records. Each replaces one with the same fields ``by``.
        by: names of fields.
        merged: makes the new record from the one that it replaces and the added one; None: it is the added one.
        order: of the records at the end of the file, by the first field of ``by``.
    """
    with writing(results.parent):
        results.parent.mkdir(parents=True, exist_ok=True)
    place = check_writable(results, overwrite=True)
    with locked(place.with_suffix("")):  # the lock of the file itself is for its writer
        records = {tuple(known.get(name) for name in by): known for known in read_study(results)}
        for record in added:
            key = tuple(record[name] for name in by)
            before = records.get(key)
            records[key] = dict(record if before is None or merged is None else merged(before, record))
        ranks = {name: rank for rank, name in enumerate(order)}
        in_order = of_one_form(sorted(records.values(), key=lambda known: ranks.get(known[by[0]], -1)))
        write_records(results, in_order)
    return in_order


def recorded_scores(record: Mapping[str, Any], part: str) -> list[Score]:
    """Return the scores of a recorded run on a split or file, by group and last for all."""
    scores = record["scores"][part]
    if isinstance(scores, list):  # as records were at first, a row for each score
        return [row_score(row, row_group(scores[-1])) for row in scores]
    return column_scores(scores)


def packed_answers(right: NDArray[np.bool_]) -> list[Any]:
    """Return bool ``[examples]`` as a record holds it, for :func:`right_answers`."""
    return [len(right), base64.b64encode(np.packbits(right).tobytes()).decode()]


def right_answers(record: Mapping[str, Any], part: str) -> NDArray[np.bool_]:
    """Return which examples of a split or file a recorded run has correct, bool ``[examples]``."""
    return unpacked_answers(record["right"][part])


def unpacked_answers(packed_answers: Sequence[Any]) -> NDArray[np.bool_]:
    """Return what :func:`packed_answers` packed, bool ``[examples]``."""
    count, packed = packed_answers
    return np.unpackbits(np.frombuffer(base64.b64decode(packed), np.uint8), count=count).astype(bool)


def of_one_form(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records with the fields of all; None for a missing field."""
    fields = dict.fromkeys(name for record in records for name in record)
    return [{name: record.get(name) for name in fields} for record in records]
