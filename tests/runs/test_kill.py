from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from toy_task import MoreX

import treemem
from treemem import checkpoint

SCRIPT = Path(__file__).with_name("killed_run.py")
TIMES = {"seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


# When the first checkpoint is written and not yet renamed; while the files of a later one are written;
# between the two renamings of a save, when `last` is not there; and within an epoch.
MOMENTS = [("rename", 1), ("fsync", 10), ("rename", 4), ("step", 20)]


def start(output: Path, *moment: object) -> subprocess.Popen[bytes]:
    search = os.pathsep.join([str(Path(treemem.__file__).parents[1]), str(SCRIPT.parents[1])])
    command = [sys.executable, str(SCRIPT), str(output), *map(str, moment)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": search})


def log_of(output: Path) -> list[dict[str, object]]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def test_a_killed_process_resumes_to_the_numbers_of_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    unbroken = start(whole)
    left_behind = set()
    for moment in MOMENTS:
        assert start(broken, *moment).wait() == -signal.SIGKILL, moment
        left_behind |= {path.name for path in broken.glob(".*.tmp")}
    assert ".last.tmp" in left_behind
    assert start(broken).wait() == 0
    assert not list(broken.glob(".*.tmp"))
    assert unbroken.wait() == 0
    assert log_of(broken) == log_of(whole)
    assert len(log_of(whole)) == 6
    for name in ("last", "best"):
        ours = treemem.load(broken / name, tasks={"more_x": MoreX}).state_dict()
        theirs = treemem.load(whole / name, tasks={"more_x": MoreX}).state_dict()
        assert all(torch.equal(ours[weight], theirs[weight]) for weight in theirs)
    assert checkpoint.load_training_state(broken / "last")[0]["progress"]["epoch"] == 6
