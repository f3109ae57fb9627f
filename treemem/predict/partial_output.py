"""The answers that a run has written so far, from which it can be resumed whenever it was killed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from treemem.errors import RecipeError
from treemem.records import bring_to_disk, lock_path, replacing, temporary_path, write_file, writing

_INT64 = 1 << 63
_BLOCK = 1 << 16
_BEGIN_ANEW = "begin anew with overwrite (--overwrite)"


class PartialOutput:
    """The answers of a run, as JSONL in ``<output>.partial``, until all are there.

    ``<output>.partial.json`` says what the run depends on and how many answers are complete. Resuming drops what was
    written after these. If a run ends early, both files stay, unless there are no answers. The caller holds the lock of
    ``output``.

    Args:
        output: the whole output, which exists only when it is complete.
        run: what the answers depend on, as JSON can hold it.
        resume: continue from the answers that exist.
        overwrite: replace an existing output; a resumed run keeps to what it was begun with.

    Attributes:
        num_lines: number of answers.
        num_rejected: number of answers with an error.
        digest: of the records that are answered, as given to :meth:`append`.

    Raises:
        RecipeError: the files cannot be written or are damaged, they belong to another run, or ``output`` exists and
            may not be replaced.
    """

    def __init__(self, output: Path, run: Mapping[str, Any], *, resume: bool, overwrite: bool = False) -> None:
        self.output, self._run, self._overwrite = output, run, overwrite
        self.path, self._run_path, self._temporary, _ = self.files_of(output)
        self.num_lines, self.num_rejected, self._num_bytes, self.digest = 0, 0, 0, ""
        with writing(self.path):
            if resume and self.path.exists():
                self._take_up()
            if output.exists() and not self._overwrite:
                raise self._output_exists()
            self._stream: IO[bytes] = self.path.open("ab", buffering=0)
        try:
            with writing(self.path):
                self._stream.truncate(self._num_bytes)
            self._save()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def files_of(output: Path) -> tuple[Path, Path, Path, Path]:
        """What a run for ``output`` writes beside it: answers, what they depend on, a temporary file, a lock."""
        partial = output.with_name(f"{output.name}.partial")
        return partial, output.with_name(f"{partial.name}.json"), temporary_path(output), lock_path(output)

    @staticmethod
    def is_begun(output: Path) -> bool:
        """Whether a run for ``output`` was cut off. Removes the leftovers of one whose output is complete."""
        left = PartialOutput.files_of(output)[:3]
        with writing(output):
            if any(output.exists() and path.exists() and path.samefile(output) for path in left):
                for path in left:
                    path.unlink(missing_ok=True)
        return left[0].exists()

    def _take_up(self) -> None:
        """Continue from what an earlier run said to be complete."""
        is_empty = not self.path.stat().st_size
        try:
            before = json.loads(self._run_path.read_bytes())
            self._overwrite = bool(before["overwrite"])
            if is_empty:
                return
            self.num_lines, self.num_rejected = int(before["answers"]), int(before["rejected"])
            self._num_bytes, self.digest = int(before["bytes"]), str(before["digest"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            if is_empty:
                return
            problem = f"{self._run_path} does not say what it depends on"
            raise RecipeError(f"cannot resume {self.path}: {problem}; {_BEGIN_ANEW}") from error
        name = next((name for name in self._run if before.get(name) != self._run[name]), None)
        if name is not None and self.num_lines:
            shown = f"the {name.replace('_', ' ')} was {before.get(name)!s:.40} and is now {self._run[name]!s:.40}"
            raise RecipeError(f"cannot resume {self.path}: {shown}; give the same as before, or {_BEGIN_ANEW}")
        with self.path.open("rb") as stream:
            blocks = iter(lambda: stream.read(min(_BLOCK, self._num_bytes - stream.tell())), b"")
            if (sum(block.count(b"\n") for block in blocks), stream.tell()) != (self.num_lines, self._num_bytes):
                problem = f"it does not hold the {self.num_lines} answers that {self._run_path} tells of"
                raise RecipeError(f"{self.path} is damaged: {problem}; {_BEGIN_ANEW}")

    def _save(self) -> None:
        """Say what the run depends on and which answers are complete."""
        counts = {"answers": self.num_lines, "rejected": self.num_rejected, "bytes": self._num_bytes}
        about = {**self._run, "overwrite": self._overwrite, **counts, "digest": self.digest}
        with replacing(self._run_path) as temporary:
            temporary.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def append(self, lines: bytes, *, count: int, rejected: int, digest: str) -> None:
        """Add answers: all of them, or a part that does not count if the disk is full.

        Args:
            lines: the answers.
            count: how many they are.
            rejected: how many of them have an error.
            digest: of the records that these and all earlier answers are for.

        Raises:
            RecipeError: they cannot be written.
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
            format: of the output.
            fields: of an answer.
            packed: whether the output is packed.

        Raises:
            RecipeError: the output cannot be written, or exists and may not be replaced. The answers stay.
        """
        with writing(self.output):
            if format == "jsonl" and not packed:
                self._publish(self.path)
            else:
                types = self._types() if format == "parquet" else None
                answers = self._answers()
                if types is not None and types["id"] is str:
                    answers = ({**answer, "id": str(answer["id"])} for answer in answers)
                write_file(self._temporary, answers, format=format, packed=packed, fields=fields, types=types)
                bring_to_disk(self._temporary)
                self._publish(self._temporary)
            # The temporary file goes last: as long as it is the output, the output is known to be complete.
            for path in (self.path, self._run_path, self._temporary):
                path.unlink(missing_ok=True)

    def _publish(self, whole: Path) -> None:
        """Make a file the output, which is replaced only if the run overwrites."""
        if not self._overwrite:
            try:
                self.output.hardlink_to(whole)
                return
            except OSError as error:  # it exists, or the file system has no links
                if self.output.exists():
                    raise self._output_exists() from error
        whole.replace(self.output)

    def _output_exists(self) -> RecipeError:
        remedy = "move it away and go on with resume (--resume)"
        return RecipeError(f"{self.output} exists now and may not be replaced; {remedy}, or {_BEGIN_ANEW}")

    def _answers(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    problem = f"line {number} is not an answer"
                    raise RecipeError(f"{self.path} is damaged: {problem}; {_BEGIN_ANEW}") from error

    def _types(self) -> dict[str, type]:
        """The types of Parquet columns; an ``id`` is a number only if each is one of 64 bits."""
        ids = all(type(answer["id"]) is int and -_INT64 <= answer["id"] < _INT64 for answer in self._answers())
        predictions = not any(isinstance(answer["prediction"], str) for answer in self._answers())
        return {
            "id": int if ids else str,
            "prediction": int if predictions else str,
            "probability": float,
            "error": str,
        }

    def close(self) -> None:
        """Close the file; delete it if there are no answers."""
        self._stream.close()
        with contextlib.suppress(OSError):
            if not self.path.stat().st_size:
                self.path.unlink()
                self._run_path.unlink()

    def __enter__(self) -> PartialOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
