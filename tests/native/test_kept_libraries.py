"""Where compiled libraries are kept, which of them are loaded, and what killed processes leave."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from treemem.native import kept_libraries
from treemem.native.kept_libraries import Kept, kept_library

WHOLE = bytes(range(256)) * 20
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has no cache yet, with temporary files beside it."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return home


def write(path: Path) -> None:
    path.write_bytes(WHOLE)


def refuse(path: Path) -> None:
    raise AssertionError("it is compiled again")


def load(path: str) -> bytes:
    return Path(path).read_bytes()


def keep(compile_to: Callable[[Path], None] = write, name: str = "a-1") -> Kept:
    kept = kept_library(name, compile_to, load)
    assert kept.library == WHOLE
    return kept


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_library_is_compiled_once_into_a_private_folder(home: Path) -> None:
    old = os.umask(0)
    try:
        first = keep()
    finally:
        os.umask(old)
    again = keep(refuse)
    folder = home / ".cache" / "treemem"
    assert (first.folder, first.is_new, first.problem) == (folder, True, "")
    assert (again.folder, again.is_new, again.problem) == (folder, False, "")
    assert [mode(home / ".cache"), mode(folder)] == [0o700, 0o700]
    assert [mode(each) for each in folder.glob("*.so")] == [0o600]
    assert not [*folder.glob("tmp*")]


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        *(lambda path, size=size: os.truncate(path, size) for size in (0, 1, 64, 2560, len(WHOLE) - 1)),
        lambda path: path.write_bytes(WHOLE[:-1] + b"x"),
        lambda path: path.write_bytes(WHOLE + b"x"),
        link,
        lambda path: path.chmod(0o666),
        lambda path: path.rename(path.with_name("a-1-00000000000000000000000000000000.so")),
        pytest.param(lambda path: os.chown(path, 12345, 12345), marks=needs_root),
    ],
)
def test_a_library_that_is_torn_or_may_be_another_one_is_compiled_anew(
    change: Callable[[Path], None], home: Path
) -> None:
    (path,) = keep().folder.glob("*.so")
    change(path)
    assert keep().is_new
    assert not keep(refuse).is_new


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_what_lies_in_a_folder_that_others_can_write_is_not_loaded(bits: int, home: Path) -> None:
    folder = keep().folder
    folder.chmod(bits)
    assert keep().is_new
    assert mode(folder) == 0o700


@needs_root
def test_a_folder_of_another_user_is_refused(home: Path) -> None:
    folder = keep().folder
    os.chown(folder, 12345, 12345)
    kept = keep()
    assert (kept.is_new, kept.folder.parent.name) == (True, "temporary")
    assert kept.problem == f"{folder} belongs to another user"


def test_without_a_folder_of_ones_own_nothing_is_loaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep()
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    monkeypatch.setattr(kept_libraries, "_administrator", lambda: 54320)
    with pytest.raises(OSError, match="belongs to another user"):
        kept_library("a-1", write, load)


@pytest.mark.parametrize("bits", [0o777, 0o757, 0o1777])
def test_a_folder_that_others_can_replace_is_refused(bits: int, home: Path) -> None:
    keep()
    home.chmod(bits)
    kept = keep()
    if bits & stat.S_ISVTX:  # as /tmp has it
        assert not kept.is_new
    else:
        assert (kept.is_new, kept.folder.parent.name) == (True, "temporary")
        assert kept.problem == f"other users can write {home}"
        assert not keep(refuse).is_new


def test_a_folder_is_refused_if_others_can_replace_a_link_on_the_way(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "second").symlink_to(home)
    (tmp_path / "first").symlink_to("shared/second")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    assert not keep().problem
    shared.chmod(0o777)
    assert keep().problem == f"other users can write {shared}"


def test_a_group_of_this_user_alone_may_write(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.chmod(0o770)
    group = home.stat().st_gid
    for members, problem in ([], ""), (["me"], ""), (["me", "you"], f"other users can write {home}"):
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_gid=group))
        found = SimpleNamespace(gr_name="me", gr_mem=members)
        monkeypatch.setattr(kept_libraries.grp, "getgrgid", {group: found}.__getitem__)
        assert keep().problem == problem


@pytest.mark.parametrize("relative", ["cache", ".", "./cache", "~"])
@pytest.mark.parametrize("variable", ["HOME", "", None])
def test_a_relative_cache_is_ignored_and_without_a_variable_the_home_is_that_of_the_user(
    relative: str, variable: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    if variable != "HOME":
        monkeypatch.delenv("HOME") if variable is None else monkeypatch.setenv("HOME", variable)
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(home)))
    assert keep().folder == home / ".cache" / "treemem"


def test_a_user_without_a_home_has_a_folder_of_temporary_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    folder = keep().folder
    assert folder.parent.name == "temporary"
    assert mode(folder) == 0o700


def test_a_home_that_cannot_be_written_is_told(home: Path) -> None:
    home.rmdir()
    home.write_text("a file")
    kept = keep()
    assert kept.folder.parent.name == "temporary"
    assert "Not a directory" in kept.problem or "File exists" in kept.problem


def test_a_full_disk_is_told(home: Path) -> None:
    def fill(path: Path) -> None:
        if home in path.parents:
            raise OSError(28, "No space left on device")
        write(path)

    kept = keep(fill)
    assert (kept.folder.parent.name, kept.problem) == ("temporary", "[Errno 28] No space left on device")
    assert not [*(home / ".cache" / "treemem").glob("tmp*")]


def test_what_cannot_be_loaded_is_not_kept(home: Path) -> None:
    def broken(path: str) -> bytes:
        raise OSError(f"{path}: invalid ELF header")

    with pytest.raises(OSError, match="invalid ELF header"):
        kept_library("a-1", write, broken)
    assert not [*home.rglob("*.so")]
    assert keep().is_new


PROCESS = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[1])
from kept_libraries import kept_library
def slow(path):
    path.write_bytes(b"half")
    print(path.parent, flush=True)
    sys.stdin.read()
    path.write_bytes(bytes(range(256)) * 20)
kept_library("a-1", slow, lambda path: pathlib.Path(path).read_bytes())
"""


def compiling_process() -> tuple[subprocess.Popen[str], Path]:
    """Return a process that compiles until its input ends, and the folder in which it does."""
    code = [sys.executable, "-c", PROCESS, str(Path(kept_libraries.__file__).parent)]
    process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_leaves_is_removed_at_the_next_start(home: Path) -> None:
    keep(name="b-1")
    process, build = compiling_process()
    with process:
        keep(refuse, name="b-1")
        assert build.is_dir(), "the process lives"
        process.kill()
    assert build.is_dir()
    assert not keep(refuse, name="b-1").is_new
    assert not build.exists()
    assert keep().is_new


def test_a_process_waits_for_another_that_compiles_the_same(home: Path) -> None:
    process, _ = compiling_process()
    with process:
        assert process.stdin is not None
        process.stdin.close()
        assert not keep(refuse).is_new


def test_a_process_that_compiles_for_too_long_is_not_waited_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep().folder
    monkeypatch.setattr(kept_libraries, "_MOST_SECONDS", 0)
    (folder / "tmp1").mkdir()
    with FileLock(folder / "lock"):
        kept = keep(name="b-1")
    assert kept.folder.parent.name == "temporary"
    assert "could not be acquired" in kept.problem
    assert (folder / "tmp1").is_dir()
