"""What a run has written so far, in a form that it can go on from whenever it was killed."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from treemem.errors import RecipeError
from treemem.records import replacing, write_records, writing

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None  # type: ignore[assignment]

_logger = logging.getLogger(__name__)
_BLOCK = 1 << 16
_INT64 = 1 << 63
_MEANING = {
    "weights": "the model",
    "threshold": "the threshold",
    "input": "the input file",
    "input_bytes": "the size of the input file",
    "input_format": "the format of the input",
}


class PartialOutput:
    """The answers of a run, as JSONL in ``<output>.partial``, until all are there.

    Beside it, ``<output>.partial.json`` says what the run depends on. The file is locked while a run writes it, and
    what a run leaves behind that ends early stays, unless it is empty.

    Args:
        output: where the whole output will be.
        run: what the answers depend on, as JSON can hold it.
        resume: go on with what is there. A torn last line is cut off.

    Attributes:
        num_lines: how many answers were there when it was opened.

    Raises:
        RecipeError: it cannot be written, another process is writing it, or what is there is of another run.
    """

    def __init__(self, output: Path, run: Mapping[str, Any], *, resume: bool) -> None:
        self.output = output
        self.path = output.with_name(f"{output.name}.partial")
        self._run_path = output.with_name(f"{output.name}.partial.json")
        with writing(self.path):
            self._stream: IO[bytes] = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            self._lock()
            with writing(self.path):
                kept = _whole_lines_end(self._stream) if resume else 0
                if kept:
                    self._check_run(run)
                self._stream.truncate(kept)
                self._stream.seek(0)
                self.num_lines = sum(block.count(b"\n") for block in iter(lambda: self._stream.read(_BLOCK), b""))
            if not kept:
                with replacing(self._run_path) as temporary:
                    temporary.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def is_there(output: Path) -> bool:
        """Whether a run for ``output`` was cut off."""
        return output.with_name(f"{output.name}.partial").exists()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_current = self.path.exists() and os.path.samestat(os.fstat(self._stream.fileno()), self.path.stat())
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                _logger.warning("the file system cannot lock %s (%s); start no second run", self.path, error.strerror)
                return
            is_current = False
        if not is_current:
            raise RecipeError(f"another process is writing {self.output}; wait for its end, or choose another name")

    def _check_run(self, run: Mapping[str, Any]) -> None:
        remedy = "give the same as before, or begin anew with overwrite (--overwrite)"
        try:
            before = json.loads(self._run_path.read_bytes())
            differing = [name for name in _MEANING if before[name] != run[name]]
        except (OSError, ValueError, LookupError, TypeError) as error:
            problem = f"{self._run_path} does not say what it depends on"
            raise RecipeError(
                f"cannot go on with {self.path}: {problem}; begin anew with overwrite (--overwrite)"
            ) from error
        if differing:
            name = differing[0]
            shown = "" if name == "weights" else f" ({before[name]} before, {run[name]} now)"
            raise RecipeError(f"cannot go on with {self.path}: {_MEANING[name]} is another one{shown}; {remedy}")

    def answers(self) -> Iterator[dict[str, Any]]:
        """The answers that are there.

        Raises:
            RecipeError: a line that is none, with its number.
        """
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    answer = json.loads(line)
                    complete = isinstance(answer, dict) and {"id", "error"} <= answer.keys()
                except ValueError:
                    complete = False
                if not complete:
                    raise RecipeError(
                        f"{self.path} is damaged: line {number} is no answer; begin anew with overwrite (--overwrite)"
                    )
                yield answer

    def append(self, lines: bytes) -> None:
        """Add answers, all of them or, where the disk is full, perhaps a part.

        Raises:
            RecipeError: they cannot be written.
        """
        with writing(self.path):
            self._stream.seek(0, os.SEEK_END)
            remaining = memoryview(lines)
            while remaining:
                remaining = remaining[self._stream.write(remaining) :]
            os.fsync(self._stream.fileno())

    def finish(self, format: str, fields: tuple[str, ...]) -> None:
        """Turn the answers, which are all there, into the output.

        Raises:
            RecipeError: it cannot be written; the answers stay.
        """
        if format == "jsonl" and not self.output.name.lower().endswith(".gz"):
            with writing(self.output):
                self.path.replace(self.output)
        else:
            types, ids_are_numbers = self._types()
            answers = self.answers() if ids_are_numbers or format != "parquet" else map(_with_text_id, self.answers())
            write_records(self.output, answers, format=format, fields=fields, types=types)
            with writing(self.path):
                self.path.unlink()
        with writing(self._run_path):
            self._run_path.unlink(missing_ok=True)

    def _types(self) -> tuple[dict[str, type], bool]:
        """The types of the fields, and whether every id is a whole number of 64 bits."""
        ids_are_numbers, predictions_are_numbers = True, True
        for answer in self.answers():
            identity = answer["id"]
            ids_are_numbers &= type(identity) is int and -_INT64 <= identity < _INT64
            predictions_are_numbers &= not isinstance(answer["prediction"], str)
        types: dict[str, type] = {
            "id": int if ids_are_numbers else str,
            "prediction": int if predictions_are_numbers else str,
            "probability": float,
            "error": str,
        }
        return types, ids_are_numbers

    def close(self) -> None:
        """Let go of the file; where nothing is in it, it is deleted."""
        is_empty = self.path.exists() and not os.fstat(self._stream.fileno()).st_size
        if is_empty and os.path.samestat(os.fstat(self._stream.fileno()), self.path.stat()):
            with contextlib.suppress(OSError):
                self.path.unlink()
                self._run_path.unlink(missing_ok=True)
        self._stream.close()

    def __enter__(self) -> PartialOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _with_text_id(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "id": str(answer["id"])}


def _whole_lines_end(stream: IO[bytes]) -> int:
    """Where the last whole line of a file ends; 0 where there is none."""
    end = stream.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _BLOCK)
        stream.seek(begin)
        block = stream.read(end - begin)
        newline = block.rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
