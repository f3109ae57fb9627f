from __future__ import annotations

import os
import time

import pytest

from treemem.child_process import ChildProcess, ChildProcessDied
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


def test_a_closed_child_process_is_gone() -> None:
    child = ChildProcess("waits")
    pid = child.call(os.getpid)
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ChildProcessDied):
        child.call(time.sleep, 0)
