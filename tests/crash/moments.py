"""The moments at which a command could be killed: what its folder holds before each operation on a file.

``kill -9`` leaves what has reached the files so far, so a copy of the folder at that moment is what a killed process
leaves behind. Python reports each operation on a file to an audit hook before it is done. Therefore one run of a
command shows all its moments, and the library needs no hook of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_OPERATIONS = frozenset(
    {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "fcntl.flock"}
)
_Listing = dict[str, tuple[int, int, int]]
_before_operation: Callable[[], None] | None = None


@dataclass(frozen=True)
class Moment:
    """A state that a killed process may leave.

    Attributes:
        name: what has just changed, for messages.
        changed: paths of the files and folders that have come, changed or gone.
        folder: a copy of the command's folder.
    """

    name: str
    changed: tuple[str, ...]
    folder: Path

    @property
    def is_visible(self) -> bool:
        """Whether anything changed but hidden files and folders, which are temporary."""
        return not all(any(part.startswith(".") for part in Path(path).parts) for path in self.changed)

    @property
    def kind(self) -> str:
        """What has just changed, without the numbers of seeds, the files of checkpoints and the names of arrays."""
        without_files = re.sub(r"checkpoints/\d+/\S+", "checkpoint", self.name)
        return re.sub(r"\d+", "", re.sub(r"\w+(\.npy|\.npy\.tmp)\b", r"\1", without_files))

    def __str__(self) -> str:
        return self.name


def moments_of(command: Callable[[], object], folder: Path, kept: Path) -> list[Moment]:
    """Run a command and return the moments of its folder that differ by more than locks, in their order.

    A file that has grown since the moment before is also kept with half of what came, as a process leaves it that dies
    while it writes.

    Args:
        command: what to run.
        folder: where it writes.
        kept: an absent folder for the copies, outside of ``folder``.
    """
    moments: list[Moment] = []
    seen: set[bytes] = set()
    before = _listing(folder)

    def keep(name: str, changed: Sequence[str], torn: str = "", length: int = 0) -> None:
        place = kept / f"{len(moments):04d}"
        shutil.copytree(folder, place, symlinks=True)
        if torn:
            os.truncate(place / torn, length)
        digest = _digest(place)
        if digest in seen:
            shutil.rmtree(place)
            return
        seen.add(digest)
        moments.append(Moment(f"{len(moments)}: {name}", tuple(changed), place))

    def note() -> None:
        nonlocal before
        now = _listing(folder)
        if now == before:
            return
        changed = [name for name in now if now[name] != before.get(name)]
        gone = [name for name in before if name not in now]
        sizes = {number: size for size, _, number in before.values()}  # a renamed file keeps its number
        for name in changed:
            size, _, number = now[name]
            if sizes.get(number, 0) < size:
                keep(f"{name} is half written", [name], name, (sizes.get(number, 0) + size) // 2)
        before = now
        told = [*(f"{name} is written" for name in changed), *(f"{name} is gone" for name in gone)]
        keep(", ".join(told), [*changed, *gone])

    with before_each_operation(note):
        command()
    note()
    return moments


@contextmanager
def interrupted_at(number: int, folder: Path) -> Iterator[None]:
    """Raise ``KeyboardInterrupt``, as Ctrl-C does, when so many operations have changed a folder."""
    before, left = _listing(folder), number

    def interrupt() -> None:
        nonlocal before, left
        now = _listing(folder)
        left -= now != before
        before = now
        if not left:
            left = -1
            raise KeyboardInterrupt

    with before_each_operation(interrupt):
        yield


@contextmanager
def before_each_operation(action: Callable[[], None]) -> Iterator[None]:
    """Call ``action`` before each operation on a file, except its own."""
    global _before_operation

    def guarded() -> None:
        global _before_operation
        _before_operation = None
        try:
            action()
        finally:
            _before_operation = guarded

    _before_operation = guarded
    try:
        yield
    finally:
        _before_operation = None


def _hook(event: str, _: tuple[object, ...]) -> None:
    if _before_operation is not None and event in _OPERATIONS:
        _before_operation()


sys.addaudithook(_hook)  # it cannot be removed


def _is_lock(name: str) -> bool:
    return name.endswith(".lock")


def _listing(folder: Path) -> _Listing:
    """Size, time and number of each file and folder by its path."""
    listing: _Listing = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        is_file = stat.S_ISREG(about.st_mode)
        of_content = (about.st_size, about.st_mtime_ns) if is_file else (0, 0)
        listing[str(path.relative_to(folder))] = (*of_content, about.st_ino)
    return listing


def _digest(folder: Path) -> bytes:
    """A hash of all names and contents, without locks."""
    content = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        if not _is_lock(path.name):
            content.update(f"{path.relative_to(folder)}\0{path.is_file()}\0".encode())
            content.update(path.read_bytes() if path.is_file() else b"")
    return content.digest()
