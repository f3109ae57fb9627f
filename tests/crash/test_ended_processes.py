"""Commands of several processes that are killed or interrupted take all their processes with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash.kill_points import predict, succeed, write_equations_and_model
from filelock import FileLock

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

STUDY = """
import signal
from runs.test_study import runs
from toy_task import MoreX, toy_data
from treemem.runs import run_study

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it
    long = runs(1, 2, epochs=1_000_000)
    run_study(MoreX(), long, {"data": toy_data()}, folder="study", results="study.jsonl", processes=2)
"""
# Without a guard around its main part. It stops while it writes an answer.
PREDICTION = """
import time
from treemem.predict import TreePredictor, chunks, predict_file
from treemem.predict.partial_output import PartialOutput

append = PartialOutput.append
chunks.CHUNK_RECORDS = 3

def stopping(self, lines, **counts):
    if self.num_lines:
        self._stream.write(lines[:-7])
        time.sleep(1000)
    append(self, lines, **counts)

PartialOutput.append = stopping
predict_file(TreePredictor("model", processes=2), "equations.txt", "out.jsonl")
"""
QUEUE = """
from treemem.cli import main

if __name__ == "__main__":
    main("queue listops/data-size --runs runs --results results".split())
"""


@dataclass(frozen=True)
class Row:
    """A script, and when it is ended.

    Attributes:
        name: of the row.
        script: the script.
        how: the signal.
        has_begun: whether the script has come so far that it is ended, in the current folder.
        processes: how many processes it has at least beside its own.
        check: what must hold when all its processes are gone.
    """

    name: str
    script: str
    how: signal.Signals
    has_begun: Callable[[], bool]
    processes: int
    check: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return f"{self.name}, {self.how.name}"


def both_runs_train() -> bool:
    logs = [Path(f"study/sum/seed-{seed}/metrics.jsonl") for seed in (1, 2)]
    return all(log.exists() and log.stat().st_size for log in logs)


def an_answer_is_half_written() -> bool:
    partial = Path("out.jsonl.partial")
    return partial.exists() and partial.stat().st_size > 0 and not partial.read_bytes().endswith(b"\n")


def check_answers() -> None:
    succeed(*predict("out.jsonl", "--resume"))()
    succeed(*predict("whole.jsonl"))()
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def a_job_is_taken() -> bool:
    return any(Path("runs/queue").glob("*"))


def check_job_is_free() -> None:
    (lock,) = Path("runs/queue").iterdir()
    with FileLock(lock, timeout=60):
        pass


ROWS = [
    Row("a study", STUDY, signal.SIGKILL, both_runs_train, 2),
    Row("a study", STUDY, signal.SIGINT, both_runs_train, 2),
    Row("a prediction", PREDICTION, signal.SIGKILL, an_answer_is_half_written, 1, check_answers),
    Row("a queue", QUEUE, signal.SIGKILL, a_job_is_taken, 0, check_job_is_free),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with what the scripts read."""
    monkeypatch.chdir(tmp_path)
    write_equations_and_model()
    Path("results").mkdir()
    paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_process_outlives_the_command(row: Row) -> None:
    Path("script.py").write_text(row.script)
    with Path("said.txt").open("wb") as said:
        process = subprocess.Popen([sys.executable, "script.py"], stdout=said, stderr=said)
    try:
        assert comes_true(lambda: process.poll() is not None or row.has_begun())
        assert process.poll() is None, Path("said.txt").read_text()
        others = children_of(process.pid)
        assert len(others) >= row.processes
        process.send_signal(row.how)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert comes_true(lambda: not any(Path(f"/proc/{other}").exists() for other in others))
    row.check()


def children_of(process: int) -> list[int]:
    stats = [(int(path.parent.name), path.read_text()) for path in Path("/proc").glob("[0-9]*/stat")]
    return [number for number, stat in stats if int(stat.rsplit(")", 1)[1].split()[1]) == process]


def comes_true(condition: Callable[[], bool], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False
