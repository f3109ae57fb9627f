"""Where files are written: whether a place may be written, its lock, and files that appear only when complete."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from treemem.errors import RecipeError

_NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows does not have it


def check_writable(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    is_folder: bool = False,
    source: str | os.PathLike[str] | None = None,
) -> Path:
    """Return where ``path`` is written: there, or where a link leads to. Call it before any work is done.

    Args:
        path: the file or folder to write.
        overwrite: whether a file, or a folder that is not empty, may be replaced.
        is_folder: whether a folder is written.
        source: the file that is read, which is not replaced.

    Raises:
        RecipeError: ``path`` exists and may not be replaced, is ``source``, a folder in place of a file or the reverse,
            or a device or pipe; or its parent folder does not exist.
    """
    path = Path(path)
    with writing(path):
        exists = path.exists()
        if exists and path.is_dir() != is_folder:
            kind = "a file; name a folder" if is_folder else "a folder; name a file"
            raise RecipeError(f"cannot write {path}: it is {kind}")
        if exists and not is_folder and not path.is_file():
            raise RecipeError(f"cannot write {path}: it is a device or a pipe; name a file, or - for standard output")
        if exists and source is not None and Path(source).exists() and path.samefile(source):
            raise RecipeError(f"{path} is the input; choose another output")
        if exists and not overwrite and not (is_folder and not any(path.iterdir())):
            raise RecipeError(f"{path} exists; choose another name, or replace it with overwrite=True")
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        if not place.parent.is_dir():
            raise RecipeError(f"cannot write {path}: there is no folder {place.parent}; make it first")
    return place


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, follow_link: bool = True, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary file beside ``path``, which replaces ``path`` if the block ends well.

    If ``path`` is a link, what it leads to is replaced, or without ``follow_link`` the link.

    Writers of the same file wait for each other. Without ``overwrite``, a file that another one has written meanwhile
    is not replaced. What a killed process left behind is removed by the next writer.

    Raises:
        RecipeError: as :func:`check_writable`, or ``path`` cannot be written; what stood there is then unchanged.
    """
    place = check_writable(path, overwrite=True) if follow_link else Path(path)
    temporary = temporary_path(place)
    with locked(place), writing(place):
        if not overwrite:
            check_writable(path)
        new_file(temporary)
        try:
            yield temporary
            bring_to_disk(temporary)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str, *, follow_link: bool = True, overwrite: bool = True) -> None:
    """Write a text file in UTF-8, whole or not at all. The arguments are those of :func:`replacing`.

    Raises:
        RecipeError: it cannot be written.
    """
    with replacing(path, follow_link=follow_link, overwrite=overwrite) as temporary:
        temporary.write_bytes(text.encode())


@contextlib.contextmanager
def locked(place: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the writers of a file, between processes and machines that share its folder.

    Args:
        place: the file that is written.
        wait: wait until other writers are done, rather than raise.

    Raises:
        RecipeError: another process holds the lock, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(lock_path(place), timeout=-1 if wait else 0)
    with writing(place):
        if lock_path(place).is_symlink():
            lock_path(place).unlink()
        # This raises where filelock would wait for ever, as in a folder of /proc.
        os.close(os.open(lock_path(place), os.O_WRONLY | os.O_CREAT | _NOT_THROUGH_LINKS, 0o666))
        try:
            lock.acquire()
        except Timeout as error:
            problem = f"another process is writing {place}; wait until it ends, or choose another name"
            raise RecipeError(problem) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows deletes no open file
            lock_path(place).unlink()
        lock.release()


def new_file(path: Path) -> None:
    """Make an empty file in place of whatever has this name. A link is replaced, and what it leads to stays.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def append_to(path: Path) -> IO[bytes]:
    """Open a file to append to it, without a buffer.

    Raises:
        OSError: it does not exist, is a link, or cannot be written.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | _NOT_THROUGH_LINKS), "ab", buffering=0)


def temporary_path(place: Path) -> Path:
    """The file that :func:`replacing` writes before it replaces ``place``."""
    return place.with_name(f".{place.name}.tmp")


def lock_path(place: Path) -> Path:
    """The file that :func:`locked` locks, which is deleted with the lock."""
    return place.with_name(f".{place.name}.lock")


def bring_to_disk(path: Path) -> None:
    """Return when the content of a file is on the disk.

    Raises:
        OSError: it cannot be written there.
    """
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextlib.contextmanager
def writing(place: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``RecipeError`` about writing ``place``."""
    try:
        yield
    except OSError as error:
        raise RecipeError(f"cannot write {place}: {cannot_write(error)}") from error


def cannot_write(error: OSError) -> str:
    """Why something could not be written, and what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, None)  # numpy's for a part that was written has no number
    remedy = "free some space there and do the same again" if full else "make it writable"
    return f"{error.strerror or error}; {remedy}, or choose another place"
