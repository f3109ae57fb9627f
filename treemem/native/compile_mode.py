"""Whether operations in C++ are compiled, and with which compiler."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from treemem.errors import RecipeError

ENVIRONMENT_VARIABLE = "TREEMEM_COMPILE"
_MOST_SECONDS = 300  # for a compiler; usual are ten

_forced: ContextVar[bool | None] = ContextVar("_forced", default=None)
_broken = False


@contextmanager
def compile_steps(compiled: bool) -> Iterator[None]:
    """Run what is written in C++ compiled in this block, or not, in place of ``TREEMEM_COMPILE``.

    Outside such a block the environment variable decides: ``1``, the default, compiles, and ``0`` does not. Results are
    the same except for rounding and dropout. If compiling fails, there is one warning and torch computes the same.
    Threads started in the block are not affected.

    Example:
        >>> with compile_steps(False):
        ...     pass
    """
    token = _forced.set(compiled)
    try:
        yield
    finally:
        _forced.reset(token)


def native_wanted() -> bool:
    """Return whether operations in C++ may be compiled: unless this is switched off, or compiling has failed.

    Raises:
        RecipeError: an environment variable that says something else.
    """
    forced = _forced.get()
    wanted = _from_environment() if forced is None else forced
    return wanted and not _broken and _has_compiler()


def compiler() -> list[str]:
    """Return the command of the C++ compiler, ``CXX`` or ``g++`` or ``clang++``; empty if there is none."""
    return _compiler(os.environ.get("CXX", ""))


@cache
def _compiler(named: str) -> list[str]:
    """Return the command ``named``, or else a usual one; looking takes longer than a small step."""
    commands = [named.split()] if named.strip() else [["g++"], ["clang++"]]
    return next((command for command in commands if shutil.which(command[0])), [])


def run_compiler(command: list[str], folder: Path | None = None) -> str:
    """Run a command of the compiler, and return what it prints.

    Args:
        command: with its arguments. It gets no input, and its messages are in English.
        folder: for its temporary files.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be run, fails, or takes longer than five minutes.
    """
    environment = {**os.environ, "LC_ALL": "C", **({"TMPDIR": str(folder)} if folder else {})}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=_MOST_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            if isinstance(error, subprocess.TimeoutExpired):
                error.cmd = command[0]
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0], output, errors)
    return output


def _has_compiler() -> bool:
    """Return whether there is a C++ compiler; if not, warn and compile nothing more."""
    if compiler():
        return True
    named = os.environ.get("CXX", "")
    give_up(
        f"the C++ compiler that CXX names, {named!r}, is not there"
        if named
        else "there is no C++ compiler; install g++ or name one in CXX"
    )
    return False


def give_up(reason: str) -> None:
    """Compile nothing more in this process, and warn."""
    global _broken
    _broken = True
    warnings.warn(
        f"steps run uncompiled, with the same results but more slowly: {reason} "
        f"({ENVIRONMENT_VARIABLE}=0 does so without a warning)",
        RuntimeWarning,
        stacklevel=2,
    )


def _from_environment() -> bool:
    value = os.environ.get(ENVIRONMENT_VARIABLE) or "1"
    known = {"0": False, "1": True}
    if value not in known:
        raise RecipeError(f"{ENVIRONMENT_VARIABLE}={value!r} is none of {', '.join(known)}")
    return known[value]
