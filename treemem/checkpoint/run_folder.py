"""The folder of a training run: numbered checkpoints that are written once, and which of them is the best and the last.

``RUN/checkpoints/000012/`` is a checkpoint. ``RUN/checkpoints.json`` names the best ones and the last ones, the newest
first; two of each are kept, so that a damaged one has one before it. It also says how far a training has come until it
has ended. If a run keeps the model of each
epoch, it is in ``RUN/epochs/000003/``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from treemem.checkpoint.files import in_a_line, verified_files, write_checkpoint
from treemem.errors import CheckpointError, RecipeError
from treemem.records import write_text, writing

_logger = logging.getLogger(__name__)
POINTERS, _CHECKPOINTS, _EPOCHS, _LOCK = "checkpoints.json", "checkpoints", "epochs", ".lock"
_PROGRESS = "unfinished"
_KEPT = 2
_PROBE_SECONDS = 0.2  # longer than another process takes to ask whether the lock is held
Kind = Literal["best", "last"]


class RunFolder:
    """The checkpoints of one run.

    Args:
        path: the folder; it may be absent.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def has_run(self) -> bool:
        """Return whether the folder holds a checkpoint, whole or not."""
        return bool(self._numbers())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold an exclusive lock on the folder, which is made if it is absent.

        The system releases the lock when the process ends, however it ends.

        Raises:
            RecipeError: the folder cannot be written, or another process is training in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / _LOCK, timeout=_PROBE_SECONDS)
            lock.acquire()
        except Timeout as error:
            problem = f"another process is training in {self.path}; wait for its end, or choose another folder"
            raise RecipeError(problem) from error
        except OSError as error:
            reason = "it is a file" if self.path.is_file() else error.strerror
            problem = f"cannot train in {self.path}: {reason}; output must be a folder that can be written"
            raise RecipeError(problem) from error
        try:
            yield
        finally:
            lock.release()

    def is_begun(self) -> bool:
        """Return whether a training has begun in the folder and has not written a checkpoint."""
        return (self.path / _LOCK).is_file() and not self.has_run()

    def unfinished(self) -> str | None:
        """Return how far the training of the run has come; None if it has ended, or if this is not known."""
        progress = self._named().get(_PROGRESS)
        if not progress:
            return None
        state = "is not complete yet" if self.is_in_use() else "was interrupted"
        return f"the training of {self.path} {state}: {progress['epoch']} of {progress['epochs']} epochs are done"

    def is_in_use(self) -> bool:
        """Return whether a process holds the lock of the folder; True if this cannot be asked without write access."""
        if not (self.path / _LOCK).is_file():
            return False
        try:
            with FileLock(self.path / _LOCK, timeout=0):
                return False
        except OSError:  # Timeout is one
            return True

    def set_progress(self, progress: Mapping[str, int] | None) -> None:
        """Write how far the training of a run has come, as for :meth:`save`; None: it has ended."""
        if self.has_run() and self._named().get(_PROGRESS) != progress:
            self._point(self._pointers(), progress)

    def save(self, files: Mapping[str, bytes], progress: Mapping[str, int] | None = None, *, best: bool) -> int:
        """Write the next checkpoint, make it the last one and, if it is, the best one; delete those no longer named.

        Args:
            files: of the checkpoint.
            progress: of a training that has not ended, ``epoch`` and ``epochs``.
            best: whether it is the best one so far.

        Returns:
            Its number.

        Raises:
            CheckpointError: it cannot be written; the checkpoints before it stay.
        """
        number = max(self._numbers(), default=0) + 1
        write_checkpoint(self._place(number), files)
        pointers = self._pointers()
        for kind in ("last", *(["best"] if best else [])):
            pointers[kind] = [number, *pointers[kind]][:_KEPT]
        self._point(pointers, progress)
        return number

    def keep_epoch(self, epoch: int, files: Mapping[str, bytes]) -> None:
        """Write the model of an epoch, in place of one that a killed run has left.

        Raises:
            CheckpointError: it cannot be written.
        """
        place = self.path / _EPOCHS / f"{epoch:06d}"
        shutil.rmtree(place, ignore_errors=True)
        write_checkpoint(place, files)

    def epochs(self) -> dict[int, Path]:
        """Return the folders of the models of all kept epochs, by the number of the epoch."""
        return {int(place.name): place for place in sorted((self.path / _EPOCHS).glob("[0-9]*"))}

    def drop_damaged(self) -> None:
        """Forget checkpoints that are not whole, with a warning, so that what is saved next keeps the whole ones.

        Raises:
            CheckpointError: there are checkpoints, and training can go on from none.
        """
        pointers = self._pointers()
        problems = {}
        for kind, named in pointers.items():
            for number in list(named):
                try:
                    verified_files(self._place(number), with_training_state=kind == "last")
                except CheckpointError as error:
                    problems[number] = str(error)
                    named.remove(number)
        if not problems:
            return
        if not pointers["last"]:
            damage = "; ".join(problems.values())
            raise CheckpointError(
                f"cannot resume {self.path}: {damage}; choose another output folder, or replace that run "
                "with overwrite=True"
            )
        _logger.warning("%s; going on from the checkpoint before it", "; ".join(problems.values()))
        self._point(pointers, self._named().get(_PROGRESS))

    def _point(self, pointers: Mapping[str, list[int]], progress: Mapping[str, int] | None) -> None:
        content = {**pointers, _PROGRESS: dict(progress)} if progress else pointers
        write_text(self.path / POINTERS, json.dumps(content) + "\n")
        named = {number for numbers in pointers.values() for number in numbers}
        for number in self._numbers():
            if number not in named:
                shutil.rmtree(self._place(number), ignore_errors=True)

    def find(self, kind: Kind, *, with_training_state: bool = False) -> tuple[int, Path, dict[str, bytes]] | None:
        """Return the number, folder and files of the best or the last checkpoint that is whole; None without any.

        A damaged one is skipped for the one before it, with a warning.

        Raises:
            CheckpointError: there are checkpoints, and none is whole.
        """
        pointers = self._pointers()
        others = sorted(self._numbers() - set(pointers[kind]), reverse=True)
        problems = []
        for number in [*pointers[kind], *others]:
            folder = self._place(number)
            try:
                files = verified_files(folder, with_training_state=with_training_state)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            if problems:
                _logger.warning("%s; the checkpoint %s is used instead", "; ".join(problems), folder)
            return number, folder, files
        if problems:
            raise CheckpointError("; ".join(problems))
        return None

    def make_last_best(self) -> None:
        """Make the last checkpoint the best one, if a process was killed before it had done so."""
        pointers = self._pointers()
        self._point({**pointers, "best": pointers["last"][:1]}, self._named().get(_PROGRESS))

    def number_of(self, kind: Kind) -> int | None:
        """Return the number of the best or the last checkpoint; None without any."""
        return next(iter(self._pointers()[kind]), None)

    def clear(self, *, overwrite: bool) -> None:
        """Delete what a killed run left half written and, with ``overwrite``, all checkpoints.

        Raises:
            RecipeError: the folder cannot be written.
        """
        with writing(self.path):
            if overwrite:
                shutil.rmtree(self.path / _CHECKPOINTS, ignore_errors=True)
                shutil.rmtree(self.path / _EPOCHS, ignore_errors=True)
                (self.path / POINTERS).unlink(missing_ok=True)
            for left in self.path.glob("*/.*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            for left in self.path.glob(".*.tmp"):
                left.unlink()

    def _place(self, number: int) -> Path:
        return self.path / _CHECKPOINTS / f"{number:06d}"

    def _numbers(self) -> set[int]:
        try:
            return {int(name) for name in os.listdir(self.path / _CHECKPOINTS) if name.isdigit()}  # noqa: PTH208
        except OSError:  # there is no such folder
            return set()

    def _pointers(self) -> dict[str, list[int]]:
        there, named = self._numbers(), self._named()
        if not named:
            return {"best": [], "last": sorted(there, reverse=True)}
        return {kind: [number for number in named[kind] if number in there] for kind in ("best", "last")}

    def _named(self) -> dict[str, Any]:
        """Return what the file of the pointers says; empty if it is missing or, with a warning, damaged."""
        try:
            content = json.loads((self.path / POINTERS).read_bytes())
            named: dict[str, Any] = {kind: [int(number) for number in content[kind]] for kind in ("best", "last")}
            if progress := content.get(_PROGRESS):
                named[_PROGRESS] = {name: int(progress[name]) for name in ("epoch", "epochs")}
            return named
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            _logger.warning("%s is damaged (%s); the newest checkpoint is used", self.path / POINTERS, in_a_line(error))
        return {}
