"""Compiled libraries, kept for other processes in a folder that only their user can write.

Every process that loads a library runs its code. So nothing is loaded from a folder that another user could fill or
replace, and only a whole library is: its name ends in a digest of its bytes.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from filelock import FileLock, Timeout

_Library = TypeVar("_Library")
_BUILDS = "tmp*"  # folders in which something is compiled
_MOST_SECONDS = 600  # to wait until another process has compiled
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Kept(NamedTuple):
    """A loaded library.

    Attributes:
        library: what ``load`` returned.
        folder: where it is kept.
        problem: why that is not the user's cache; empty if it is.
        is_new: whether it was compiled now.
    """

    library: object
    folder: Path
    problem: str
    is_new: bool


def kept_library(name: str, compile_to: Callable[[Path], None], load: Callable[[str], object]) -> Kept:
    """Load a library, which an earlier process has kept or which is compiled now.

    It is kept in ``$XDG_CACHE_HOME/treemem`` or ``~/.cache/treemem``. If that is not possible, it is kept in a folder
    of this user among the system's temporary files.

    Args:
        name: of the library; libraries that differ in anything have different names.
        compile_to: compiles it to a file.
        load: loads a file.

    Raises:
        OSError: it could be compiled, or kept, in neither folder.
        subprocess.TimeoutExpired: the compiler takes too long.
    """
    problems: list[str] = []
    for folder in _folders():
        try:
            _make_private(folder)
            library, is_new = _load_whole(folder, name, load), False
            if library is None:
                with _compiling_alone(folder, _MOST_SECONDS):
                    library = _load_whole(folder, name, load)
                    if library is None:
                        library, is_new = _compile(folder, name, compile_to, load), True
            elif any(folder.glob(_BUILDS)):
                with contextlib.suppress(Timeout), _compiling_alone(folder, 0):
                    pass
        except (OSError, subprocess.CalledProcessError) as error:
            problems.append(reason_of(error))
        else:
            return Kept(library, folder, "; ".join(problems), is_new)
    raise OSError("; ".join(dict.fromkeys(problems)))


def reason_of(error: Exception) -> str:
    """Return what is wrong in one line; of what a compiler prints it is the one with the error."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    errors = (line for line in lines if "error:" in line.lower() and not line.startswith("collect2"))
    return next(errors, lines[0] if lines else type(error).__name__)


def _folders() -> Iterator[Path]:
    """Yield the folders for libraries. As the XDG specification says, a relative path is ignored."""
    homes = [Path(os.environ.get("XDG_CACHE_HOME", ""))]
    with contextlib.suppress(KeyError):  # the user has no entry
        homes.append(Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir, ".cache"))
    yield from [home / "treemem" for home in homes if home.is_absolute()][:1]
    yield Path(tempfile.gettempdir()).absolute() / f"treemem-{os.getuid()}"


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can read and write.

    If others could write it, its libraries may be theirs, and are removed.

    Raises:
        OSError: it cannot be made, it belongs to another user, or another user could replace it.
    """
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            place.mkdir(0o700, exist_ok=True)
    for place in _way(folder):
        status = place.lstat()
        if status.st_uid not in {os.getuid(), _administrator()}:
            raise PermissionError(f"{place} belongs to another user")
        is_kept_by_owner = stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX  # as in /tmp
        if place == folder or is_kept_by_owner:
            continue
        if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)):
            raise PermissionError(f"other users can write {place}")
    mode = folder.stat().st_mode
    if mode & 0o077:
        folder.chmod(0o700)
    if mode & _OTHERS:
        for place in folder.glob("*.so"):
            place.unlink()


def _way(path: Path) -> Iterator[Path]:
    """Yield the folders and links through which a path leads, and the path."""
    for place in (*reversed(path.parents), path):
        yield place
        if place.is_symlink():
            yield from _way(place.parent / place.readlink())


def _administrator() -> int:
    """Return the number of the user root; in a container without root it is that of all unknown users."""
    try:
        return Path("/proc").stat().st_uid
    except OSError:
        return 0


def _is_private(group: int) -> bool:
    """Return whether this user is alone in a group, as where every user has a group of the same name."""
    try:
        user, entry = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (group, entry.gr_name) == (user.pw_gid, user.pw_name) and not {*entry.gr_mem} - {user.pw_name}


def _load_whole(folder: Path, name: str, load: Callable[[str], _Library]) -> _Library | None:
    """Load a library; what is not as it was compiled is removed."""
    for path in folder.glob(f"{name}-*.so"):
        status = path.lstat()
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & _OTHERS
        if is_own and path.name == _file_name(name, path):
            return load(str(path))
        path.unlink()
    return None


def _file_name(name: str, path: Path) -> str:
    return f"{name}-{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}.so"


def _compile(folder: Path, name: str, compile_to: Callable[[Path], None], load: Callable[[str], _Library]) -> _Library:
    """Compile a library, load it and keep it; what cannot be loaded is not kept."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as build:
        path = Path(build, "library.so")
        compile_to(path)
        path.chmod(0o600)
        library = load(str(path))
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(folder / _file_name(name, path))
    return library


@contextlib.contextmanager
def _compiling_alone(folder: Path, seconds: float) -> Iterator[None]:
    """Let no other process compile in the block; what killed ones have left is removed.

    Raises:
        Timeout: another process compiles for so long.
    """
    lock = FileLock(folder / "lock", timeout=seconds)
    try:
        lock.acquire()
    except NotImplementedError:  # the file system has no locks
        yield
        return
    try:
        for build in folder.glob(_BUILDS):
            shutil.rmtree(build, ignore_errors=True)
        yield
    finally:
        lock.release()
