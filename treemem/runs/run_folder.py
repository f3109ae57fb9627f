"""The folder of a run, which one process at a time may write."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from treemem.errors import RecipeError

try:
    import fcntl
except ImportError:  # there is none on Windows
    fcntl = None  # type: ignore[assignment]

_logger = logging.getLogger(__name__)
_LOCK = ".lock"
LOG = "log.txt"
"""Name of the file that commands keep their log in."""


def holds_run(folder: Path) -> bool:
    """Whether a run was begun in the folder, however far it came."""
    return (folder / _LOCK).is_file()


def check_empty(folder: Path) -> None:
    """Refuse to write into a folder of other things, before anything is trained.

    It may be absent, and may hold a log and hidden files.

    Raises:
        RecipeError: it names one of the things.
    """
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = sorted(name for name in others if name != LOG and not name.startswith("."))
    if others:
        raise RecipeError(
            f"{folder} holds {others[0]} and nothing that was trained there; choose a new folder for the output "
            "(--output)"
        )


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it until the block ends or the process dies, however it dies.

    The file of the lock stays: were it deleted, another process could wait for a file that is there no more.

    Raises:
        RecipeError: the folder cannot be written, or another run is at work in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror
        raise RecipeError(f"cannot train in {folder}: {reason}; output must be a folder that can be written") from error
    try:
        _lock(descriptor, folder)
        for left in folder.glob(".metrics.jsonl.*.tmp"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block of this folder, and keep others waiting until this one ends.

    Where the system cannot lock a folder, nothing waits.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            _logger.warning("the file system cannot lock %s (%s)", folder, error.strerror)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise RecipeError(
                f"another process is training in {folder}; wait for its end, or choose another folder"
            ) from error
        _logger.warning("the file system cannot lock %s (%s); start no second run there", folder, error.strerror)
