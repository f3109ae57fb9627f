from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from treemem.child_process import CannotBeSent, ChildProcess, ChildProcessDied
from treemem.errors import ParseError
from treemem.trees.brackets import parse_brackets


def test_a_child_process_answers_calls_raises_errors_and_is_missed_when_it_dies() -> None:
    with ChildProcess("counts") as child:
        assert child.call(len, "four") == 4
        assert child.call(print, "nothing that the parent reads") is None
        with pytest.raises(ParseError, match="the text holds no tree"):
            child.call(parse_brackets, "")
        assert child.call(os.getpid) != os.getpid()
        with pytest.raises(ChildProcessDied, match=r"the process that counts was ended by signal 6"):
            child.call(os.abort)
        with pytest.raises(ChildProcessDied, match="the process that counts"):
            child.call(len, "four")


class OfTheProgram:
    """A class that is said to be of the program that runs, which is another one in the child process."""


def test_what_a_child_process_cannot_be_given_is_told_and_the_next_call_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OfTheProgram, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "OfTheProgram", OfTheProgram, raising=False)
    with ChildProcess("counts") as child:
        with pytest.raises(CannotBeSent, match=r"it cannot be given to another process: .*lock"):
            child.call(id, threading.Lock())
        with pytest.raises(CannotBeSent, match=r"it is not known in another process: .*OfTheProgram"):
            child.call(id, OfTheProgram())
        assert child.call(len, "four") == 4


def test_a_closed_child_process_is_gone() -> None:
    child = ChildProcess("waits")
    pid = child.call(os.getpid)
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ChildProcessDied):
        child.call(time.sleep, 0)
