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
from treemem.records import bring_to_disk, write_file, writing

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
    "batch_size": "the batch size",
    "cache_bytes": "the room for states (cache_bytes)",
    "device": "the device",
}
_BEGIN_ANEW = "begin anew with overwrite (--overwrite)"


class PartialOutput:
    """The answers of a run, as JSONL in ``<output>.partial``, until all are there.

    Beside it, ``<output>.partial.json`` says what the run depends on, and how many answers are known to be whole; what
    was written after these is cut off where a run is gone on with. The file is locked while a run writes it, and what a
    run leaves behind that ends early stays, unless it is empty.

    Args:
        output: where the whole output will be.
        run: what the answers depend on, as JSON can hold it.
        resume: go on with what is there.
        overwrite: replace an output that is there; a run that is gone on with keeps to what it was begun with.

    Attributes:
        num_lines: how many answers there are.
        digest: of what they are the answers for, as :meth:`append` was given it.

    Raises:
        RecipeError: it cannot be written, another process is writing it, what is there is of another run, or there is
            an output that is not to be replaced.
    """

    def __init__(self, output: Path, run: Mapping[str, Any], *, resume: bool, overwrite: bool = False) -> None:
        self.output = output
        self.path = _partial_path(output)
        self._run_path = _run_path(output)
        self._temporary = _temporary_path(output)
        self._run, self._overwrite = run, overwrite
        self.num_lines, self._num_bytes, self.digest = 0, 0, ""
        self._is_own = False
        with writing(self.path):
            self._stream: IO[bytes] = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            self._lock()
            self._is_own = True
            with writing(self.path):
                self._temporary.unlink(missing_ok=True)
                if resume:
                    self._take_up()
                if not self._overwrite and self.output.exists():
                    raise self._output_is_there()
                self._stream.truncate(self._num_bytes)
                if not self.num_lines:
                    self._save()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def files_of(output: Path) -> list[Path]:
        """What a run for ``output`` writes beside it: the answers first."""
        return [_partial_path(output), _run_path(output), _temporary_path(output)]

    @staticmethod
    def is_there(output: Path) -> bool:
        """Whether a run for ``output`` was cut off.

        What a run has left behind that was killed when its output had just got its name is cleared away.
        """
        left = PartialOutput.files_of(output)
        if any(_is_same(output, path) for path in left):
            with writing(output):
                for path in left:
                    path.unlink(missing_ok=True)
        return left[0].exists()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = self._is_current()
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                _logger.warning("the file system cannot lock %s (%s); start no second run", self.path, error.strerror)
                return
            is_free = False
        if not is_free:
            raise RecipeError(f"another process is writing {self.output}; wait for its end, or choose another name")

    def _is_current(self) -> bool:
        """Whether the file that is open still is the one of its name."""
        try:
            return os.path.samestat(os.fstat(self._stream.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _take_up(self) -> None:
        """Go on with what a run before this one has said to be whole."""
        size = os.fstat(self._stream.fileno()).st_size
        try:
            before = json.loads(self._run_path.read_bytes())
            differing = [name for name in _MEANING if before[name] != self._run[name]]
            self._overwrite = bool(before["overwrite"])
            num_lines, num_bytes, digest = int(before["answers"]), int(before["bytes"]), str(before["digest"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            if not size:
                return
            problem = f"{self._run_path} does not say what it depends on"
            raise RecipeError(f"cannot go on with {self.path}: {problem}; {_BEGIN_ANEW}") from error
        if not size:
            return
        if differing and num_lines:
            name = differing[0]
            shown = "" if name == "weights" else f" ({before[name]} before, {self._run[name]} now)"
            remedy = f"give the same as before, or {_BEGIN_ANEW}"
            raise RecipeError(f"cannot go on with {self.path}: {_MEANING[name]} is another one{shown}; {remedy}")
        self._stream.truncate(min(size, num_bytes))
        found = sum(block.count(b"\n") for block in iter(lambda: self._stream.read(_BLOCK), b""))
        if (min(size, num_bytes), found) != (num_bytes, num_lines):
            problem = f"it does not hold the {num_lines} answers that {self._run_path} tells of"
            raise RecipeError(f"{self.path} is damaged: {problem}; {_BEGIN_ANEW}")
        self.num_lines, self._num_bytes, self.digest = num_lines, num_bytes, digest

    def _save(self) -> None:
        """Say what the run depends on, and which answers are whole."""
        whole = {"answers": self.num_lines, "bytes": self._num_bytes, "digest": self.digest}
        about = {**self._run, "overwrite": self._overwrite, **whole}
        with writing(self._run_path):
            self._temporary.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            bring_to_disk(self._temporary)
            self._temporary.replace(self._run_path)

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
                    raise RecipeError(f"{self.path} is damaged: line {number} is no answer; {_BEGIN_ANEW}")
                yield answer

    def append(self, lines: bytes, count: int, digest: str) -> None:
        """Add answers, all of them or, where the disk is full, perhaps a part, which does not count.

        Args:
            lines: the answers.
            count: how many they are.
            digest: of what these and all before them are the answers for.

        Raises:
            RecipeError: they cannot be written.
        """
        with writing(self.path):
            self._stream.seek(self._num_bytes)
            remaining = memoryview(lines)
            while remaining:
                remaining = remaining[self._stream.write(remaining) :]
            os.fsync(self._stream.fileno())
        self.num_lines, self._num_bytes, self.digest = self.num_lines + count, self._num_bytes + len(lines), digest
        self._save()

    def finish(self, format: str, fields: tuple[str, ...], *, packed: bool) -> None:
        """Turn the answers, which are all there, into the output.

        Args:
            format: of the output.
            fields: of an answer.
            packed: whether the output is packed.

        Raises:
            RecipeError: it cannot be written, or there is one that is not to be replaced; the answers stay. Or their
                file has been deleted meanwhile, or another put in its place.
        """
        if not self._is_current():
            raise RecipeError(f"{self.path} was deleted or replaced while it was written; do the same again")
        with writing(self.output):
            if format == "jsonl" and not packed:
                self._publish(self.path)
            else:
                types, ids_are_numbers = self._types()
                is_fit = ids_are_numbers or format != "parquet"
                answers = self.answers() if is_fit else map(_with_text_id, self.answers())
                write_file(self._temporary, answers, format=format, packed=packed, fields=fields, types=types)
                bring_to_disk(self._temporary)
                self._publish(self._temporary)
            # The temporary goes last: as long as it is the output, that is known to be complete.
            for path in (self.path, self._run_path, self._temporary):
                path.unlink(missing_ok=True)

    def _publish(self, whole: Path) -> None:
        """Make a file the output; one that is there already is replaced only if that was asked for."""
        if self._overwrite:
            whole.replace(self.output)
            return
        try:
            self.output.hardlink_to(whole)
        except FileExistsError as error:
            if not _is_same(self.output, whole):  # else a network file system has repeated what it had done
                raise self._output_is_there() from error
        except OSError as error:  # a file system without links
            if self.output.exists():
                raise self._output_is_there() from error
            whole.replace(self.output)

    def _output_is_there(self) -> RecipeError:
        return RecipeError(
            f"{self.output} is there, and was not to be replaced; move it away and go on with resume (--resume), or "
            f"{_BEGIN_ANEW}"
        )

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
        """Let go of the file; where nothing is in it, it is deleted, unless another process writes it."""
        if self._is_own and self._is_current():
            is_empty = not os.fstat(self._stream.fileno()).st_size
            with contextlib.suppress(OSError):
                if not _is_same(self.output, self._temporary):
                    self._temporary.unlink(missing_ok=True)
                if is_empty:
                    self.path.unlink()
                    self._run_path.unlink(missing_ok=True)
        self._stream.close()

    def __enter__(self) -> PartialOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _partial_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


def _run_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial.json")


def _temporary_path(output: Path) -> Path:
    return output.with_name(f".{output.name}.partial.tmp")


def _is_same(one: Path, other: Path) -> bool:
    """Whether both names are of one file."""
    return one.exists() and other.exists() and one.samefile(other)


def _with_text_id(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "id": str(answer["id"])}
