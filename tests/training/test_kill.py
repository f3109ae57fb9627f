from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import treemem
from treemem import checkpoint

SCRIPT = Path(__file__).with_name("killed_run.py")
TIMES = {"seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


def start(output: Path, how: str) -> subprocess.Popen[bytes]:
    search = os.pathsep.join([str(Path(treemem.__file__).parents[1]), str(SCRIPT.parents[1])])
    return subprocess.Popen([sys.executable, str(SCRIPT), str(output), how], env={**os.environ, "PYTHONPATH": search})


def kill_after(process: subprocess.Popen[bytes], sign: Path) -> None:
    """Kill the process, as ``kill -9`` does, as soon as ``sign`` exists."""
    deadline = time.monotonic() + 60
    while not sign.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def log_of(output: Path) -> list[dict[str, object]]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def test_a_killed_process_resumes_to_the_numbers_of_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    unbroken = start(whole, "anew")
    kill_after(start(broken, "anew"), broken / "last")
    kill_after(start(broken, "resume"), broken / "best.before")
    assert start(broken, "resume").wait() == 0
    assert unbroken.wait() == 0
    assert log_of(broken) == log_of(whole)
    assert len(log_of(whole)) == 6
    for name in ("last", "best"):
        ours = treemem.load(broken / name).state_dict()
        theirs = treemem.load(whole / name).state_dict()
        assert all(torch.equal(ours[weight], theirs[weight]) for weight in theirs)
    assert checkpoint.load_training_state(broken / "last")[0]["progress"]["epoch"] == 6
