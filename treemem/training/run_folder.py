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
