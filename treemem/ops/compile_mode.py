"""Whether steps are compiled: asked for, refused, or left to the length of the run."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

from treemem.errors import RecipeError

ENVIRONMENT_VARIABLE = "TREEMEM_COMPILE"
WORTH_NODES = 16_000_000
"""Nodes of a run from which on ``auto`` compiles.

A network of two arities has paid for the 10 s (training) or 3 s (scoring) of compiling after 2,000 to 2,400 batches of
256 equations of 17 nodes, 8 to 10 million nodes: the table of compiling in ``docs/benchmarks/two_threads.md``.
"""

_forced: ContextVar[bool | None] = ContextVar("_forced", default=None)
_announced: ContextVar[int] = ContextVar("_announced", default=0)
_broken = False


@contextmanager
def compile_steps(compiled: bool) -> Iterator[None]:
    """Compile the steps of the fused engine in this block, or do not, in place of ``TREEMEM_COMPILE``.

    Outside such a block the environment variable decides: ``1`` compiles, ``0`` does not, and ``auto``, the default,
    compiles for long training and evaluation. Results are the same except for rounding. If compiling fails, there is
    one warning and the steps run uncompiled. Threads started in the block are not affected.

    Example:
        >>> with compile_steps(False):
        ...     pass
    """
    token = _forced.set(compiled)
    try:
        yield
    finally:
        _forced.reset(token)


@contextmanager
def announced_run(nodes: int) -> Iterator[None]:
    """Tell ``auto`` the number of nodes that the block runs; in nested blocks the largest number counts.

    A number decides, and no clock, so that a repeated or resumed run has the same numbers.
    """
    token = _announced.set(max(nodes, _announced.get()))
    try:
        yield
    finally:
        _announced.reset(token)


def compiling(device: torch.device) -> bool:
    """Whether steps that begin now on ``device`` are to be compiled.

    Raises:
        RecipeError: an environment variable that says something else.
    """
    if _broken:
        return False
    forced = _forced.get()
    if forced is None:
        forced = _from_environment()
    if forced is None:
        forced = _announced.get() >= WORTH_NODES
    return bool(forced) and (device.type != "cpu" or _has_compiler())


def native_wanted() -> bool:
    """Whether operations in C++ may be compiled: unless steps are switched off, or compiling has failed.

    Raises:
        RecipeError: as of :func:`compiling`.
    """
    forced = _forced.get()
    if _broken or forced is False or (forced is None and _from_environment() is False):
        return False
    return _has_compiler()


def compiler() -> list[str]:
    """Return the command of the C++ compiler, ``CXX`` or ``g++`` or ``clang++``; empty if there is none."""
    return _compiler(os.environ.get("CXX", ""))


@cache
def _compiler(named: str) -> list[str]:
    """Return the command ``named``, or else a usual one; looking takes longer than a small step."""
    commands = [named.split()] if named.strip() else [["g++"], ["clang++"]]
    return next((each for each in commands if shutil.which(each[0])), [])


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


def _from_environment() -> bool | None:
    value = os.environ.get(ENVIRONMENT_VARIABLE) or "auto"
    known = {"0": False, "1": True, "auto": None}
    if value not in known:
        raise RecipeError(f"{ENVIRONMENT_VARIABLE}={value!r} is none of {', '.join(known)}")
    return known[value]
