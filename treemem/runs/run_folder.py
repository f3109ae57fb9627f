"""The folder of a run, which one process at a time may write."""

from __future__ import annotations

import contextlib
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
LOG = "log.txt"
"""Name of the file that commands keep their log in."""


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
