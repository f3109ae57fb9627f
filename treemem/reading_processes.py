"""Other processes that read for this one: for more cores, or because a damaged file can crash its reader.

This module imports little, because every new process imports it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from types import ModuleType
from typing import Any

from treemem.errors import TreememError


class CannotBeSent(TreememError):
    """A call that another process cannot unpickle, as with objects of classes of ``__main__``."""


@contextlib.contextmanager
def reading_processes(count: int) -> Iterator[Callable[..., Future[Any]]]:
    """Yield the ``submit`` of a pool of processes, which end with the block or with this process, however it ends.

    They do not run the program of this process again, so that scripts need no guard around their main part.

    Raises:
        CannotBeSent: by ``submit`` or its future.
        BrokenProcessPool: by ``submit`` or its future, if a process died.
    """
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)

    def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            call = pickle.dumps((function, arguments), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # pickling runs methods of the caller's classes, which may raise anything
            raise CannotBeSent(f"it cannot be sent to another process: {error}") from error
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # a new process imports what stands here
        try:
            return pool.submit(_run, call)
        finally:
            sys.modules["__main__"] = main

    try:
        yield submit
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Prepare a new process: leave Ctrl-C and standard output to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # standard error may be closed
        os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(call: bytes) -> Any:
    try:
        function, arguments = pickle.loads(call)
    except Exception as error:
        raise CannotBeSent(f"it is not known in another process: {error}") from error
    return function(*arguments)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1
