"""Another Python process that runs functions for this one: for a second core, or where a crash must not be shared."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any, TypeVar

from treemem.errors import TreememError

_Result = TypeVar("_Result")
_LENGTH = struct.Struct("<Q")


class ChildProcessDied(TreememError):
    """A child process ended before it had answered: killed, out of memory, or crashed in a library."""


class CannotBeSent(TreememError):
    """A function or an argument that cannot be pickled, or is not known in the child process."""


class ChildProcess:
    """A Python process that is started with nothing of this one but its import path, and runs one call after another.

    It never runs the program of this process a second time, so that scripts need no guard around their main part. It
    ends with this process, however that ends, and leaves Ctrl-C to it.

    Args:
        does: what it is for, in the messages: ``"reads records"``.

    Example:
        >>> with ChildProcess("counts") as child:
        ...     child.call(len, "four")
        4
    """

    def __init__(self, does: str) -> None:
        self._does = does
        begin = f"import sys; sys.path[:] = {sys.path!r}; from treemem.child_process import serve; serve()"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """What ``function`` returns there; an error that it raises there is raised here.

        Args:
            function: one that can be pickled: of a module.
            arguments: for it; they and the result are pickled.

        Raises:
            CannotBeSent: they cannot be pickled, or not be unpickled there, like objects of classes of ``__main__``.
            ChildProcessDied: the process ended.
        """
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        content = _pickled((function, arguments))
        try:
            _send(asked, content)
            is_result, answer = pickle.loads(_receive(answered))
        except (EOFError, BrokenPipeError, ValueError) as error:  # a ValueError where it was closed meanwhile
            raise ChildProcessDied(f"the process that {self._does} {self._end()}") from error
        if not is_result:
            raise answer
        return answer

    def _end(self) -> str:
        """How it ended, with the last that it said."""
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        with contextlib.suppress(ValueError):
            self._errors.seek(0)
            lines = self._errors.read()[-2000:].decode("utf-8", "replace").split("\n")
            said = [line.strip() for line in lines if line.strip()]
            how += f" ({said[-1][:200]})" if said else ""
        return how

    def close(self) -> None:
        """End it, whatever it is at."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve() -> None:
    """Answer the calls of the parent process until it closes the pipe, or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(0), "rb") as asked, os.fdopen(os.dup(1), "wb") as answered:
        os.dup2(2, 1)  # whatever prints, says nothing to the parent
        while True:
            try:
                content = _receive(asked)
            except EOFError:
                return
            try:
                _send(answered, pickle.dumps(_answer(content), protocol=pickle.HIGHEST_PROTOCOL))
            except BrokenPipeError:
                return


def _answer(content: bytes) -> tuple[bool, Any]:
    """What a call returns, or the error that it raises."""
    try:
        function, arguments = pickle.loads(content)
    except Exception as error:
        return False, CannotBeSent(f"it is not known in another process: {error}")
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, error


def _pickled(message: object) -> bytes:
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # pickling runs methods of the classes of whoever calls, which may raise anything
        raise CannotBeSent(f"it cannot be given to another process: {error}") from error


def _send(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    """The next message.

    Raises:
        EOFError: there is none, or not the whole of it.
    """
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    content = stream.read(_LENGTH.unpack(length)[0])
    if len(content) < _LENGTH.unpack(length)[0]:
        raise EOFError
    return content
