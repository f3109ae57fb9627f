"""The answers that a run has written so far. A killed run is resumed from them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from treemem.errors import RecipeError
from treemem.records import (
    append_to,
    bring_to_disk,
    new_file,
    read_json,
    read_records,
    temporary_path,
    write_file,
    write_text,
    writing,
)

_INT64 = 1 << 63
_START_OVER = "start over with overwrite=True"


class PartialOutput:
    """The answers of an incomplete run, as JSONL in ``<output>.partial``.

    ``<output>.partial.json`` holds the settings of the run and the number of complete answers. Resuming drops
    everything after these. If a run ends early, both files stay, unless there are no answers. The caller holds the lock
    of ``output``.

    Args:
        output: the output, which exists only when it is complete.
        run: what the answers depend on, as JSON values.
        resume: continue from the existing answers.
        overwrite: replace an existing output. A resumed run uses the value that it started with.

    Attributes:
        num_lines: number of answers.
        num_rejected: number of answers with an error.
        digest: digest of the answered records, as given to :meth:`append`.

    Raises:
        RecipeError: the files are damaged, belong to another run or cannot be written, or ``output`` exists and may not
            be replaced.
    """

    def __init__(self, output: Path, run: Mapping[str, Any], *, resume: bool, overwrite: bool = False) -> None:
        self.output, self._run, self._overwrite = output, run, overwrite
        self.path, self._run_path = self.files_of(output)
        self.num_lines, self.num_rejected, self._num_bytes, self.digest = 0, 0, 0, ""
        if resume and self.path.exists():
            self._resume()
        self._check_output()
        self._save()
        with writing(self.path):
            if not self._num_bytes:
                new_file(self.path)
            self._stream: IO[bytes] = append_to(self.path)
            self._stream.truncate(self._num_bytes)

    @staticmethod
    def files_of(output: Path) -> tuple[Path, Path]:
        """Return the paths of the answers and of the settings of a run for ``output``."""
        return output.with_name(f"{output.name}.partial"), output.with_name(f"{output.name}.partial.json")

    @staticmethod
    def exists(output: Path) -> bool:
        """Return whether there is an incomplete run for ``output``. Without answers, its settings are removed."""
        path, run_path = PartialOutput.files_of(output)
        if not path.exists():
            with writing(output):
                run_path.unlink(missing_ok=True)
        return path.exists()

    def _resume(self) -> None:
        """Continue from the complete answers of an earlier run."""
        try:
            before = read_json(self._run_path.read_bytes())
            self._overwrite = bool(before["overwrite"])
            self.num_lines, self.num_rejected = int(before["answers"]), int(before["rejected"])
            self._num_bytes, self.digest = int(before["bytes"]), str(before["digest"])
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
            raise RecipeError(f"cannot resume: {self._run_path} is damaged; {_START_OVER}") from error
        name = next((name for name in self._run if before.get(name) != self._run[name]), None)
        if name is not None:
            shown = f"the {name.replace('_', ' ')} was {before.get(name)!s:.40} and is now {self._run[name]!s:.40}"
            raise RecipeError(f"cannot resume {self.path}: {shown}; use the same as before, or {_START_OVER}")
        if self.path.stat().st_size < self._num_bytes:
            raise RecipeError(f"{self.path} is damaged: it has less than {self.num_lines} answers; {_START_OVER}")

    def _save(self) -> None:
        """Record the settings of the run and the number of complete answers."""
        counts = {"answers": self.num_lines, "rejected": self.num_rejected, "bytes": self._num_bytes}
        about = {**self._run, "overwrite": self._overwrite, **counts, "digest": self.digest}
        write_text(self._run_path, json.dumps(about, indent=1) + "\n", follow_link=False)

    def append(self, lines: bytes, *, count: int, rejected: int, digest: str) -> None:
        """Add answers.

        Args:
            lines: the answers as JSONL.
            count: number of answers.
            rejected: number of answers with an error.
            digest: digest of the records of these and all earlier answers.

        Raises:
            RecipeError: the file cannot be written. A part that was written does not count.
        """
        with writing(self.path):
            remaining = memoryview(lines)
            while remaining:
                remaining = remaining[self._stream.write(remaining) :]
            os.fsync(self._stream.fileno())
        self.num_lines, self.num_rejected = self.num_lines + count, self.num_rejected + rejected
        self._num_bytes, self.digest = self._num_bytes + len(lines), digest
        self._save()

    def finish(self, format: str, fields: tuple[str, ...], *, packed: bool) -> None:
        """Turn the complete answers into the output.

        Args:
            format: format of the output.
            fields: fields of an answer.
            packed: whether the output is packed with gzip.

        Raises:
            RecipeError: the output cannot be written, or exists and may not be replaced. The answers stay.
        """
        self._check_output()
        with writing(self.output):
            complete = self.path
            if format != "jsonl" or packed:
                complete = temporary_path(self.output)
                new_file(complete)
                types = self._types(fields) if format == "parquet" else None
                answers = self._answers(fields) if format == "jsonl" else map(with_lists_as_text, self._answers(fields))
                if types is not None and types["id"] is str:
                    answers = ({**answer, "id": str(answer["id"])} for answer in answers)
                write_file(complete, answers, format=format, packed=packed, fields=fields, types=types)
                bring_to_disk(complete)
            self._overwrite = True  # a run that is killed below may replace its own output
            self._save()
            complete.replace(self.output)
            for path in (self.path, self._run_path):
                path.unlink(missing_ok=True)

    def _check_output(self) -> None:
        if self.output.exists() and not self._overwrite:
            remedy = f"move it away and continue with resume=True, or {_START_OVER}"
            raise RecipeError(f"{self.output} exists now and may not be replaced; {remedy}")

    def _answers(self, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for record in read_records(self.path, format="jsonl"):
            if not {*fields} <= {*record.fields}:
                raise RecipeError(f"{self.path} is damaged: line {record.line} is no answer; {_START_OVER}")
            yield record.fields

    def _types(self, fields: tuple[str, ...]) -> dict[str, type]:
        """Return the types of Parquet columns. The ``id`` is a number only if all ids are integers of 64 bits."""
        ids = all(type(answer["id"]) is int and -_INT64 <= answer["id"] < _INT64 for answer in self._answers(fields))
        types = {type(answer["prediction"]) for answer in self._answers(fields)} - {type(None)}
        prediction = str if types & {str, list} else next((kind for kind in (float, int, bool) if kind in types), int)
        known = {"id": int if ids else str, "prediction": prediction, "probability": float}
        return {name: known.get(name, str) for name in fields}

    def close(self) -> None:
        """Close the file. Delete it if there are no answers."""
        self._stream.close()
        with contextlib.suppress(OSError):
            if not self.path.stat().st_size:
                self.path.unlink()
                self._run_path.unlink()

    def __enter__(self) -> PartialOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def with_lists_as_text(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with JSON for a list or an explanation, as formats without lists hold it."""
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
        for name, value in answer.items()
    }
