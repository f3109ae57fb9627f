from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
import toy_task  # noqa: F401  # registers the task

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder

SCRIPT = Path(__file__).with_name("killed_run.py")
TIMES = {"seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


# When the first checkpoint is written and not yet renamed; while the files of a later one are written; when one has its
# name and the log lacks its epoch; and within an epoch.
MOMENTS = [("rename", 1), ("fsync", 15), ("rename", 4), ("step", 20)]


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
    reported: list[dict[str, object]] = []
    for moment in MOMENTS:
        assert start(broken, *moment).wait() == -signal.SIGKILL, moment
        left_behind |= {path.name for path in broken.rglob(".*.tmp")}
        if (broken / "checkpoints.json").is_file():
            done = RunFolder(broken).find("last", with_training_state=True)
            assert done is not None
            records = checkpoint.records_of(done[2], done[1])
            assert len(records) >= len(reported), "no epoch that the log reported is lost"
            reported = log_of(broken)
    assert ".000001.tmp" in left_behind
    assert start(broken).wait() == 0
    assert not list(broken.rglob(".*.tmp"))
    assert unbroken.wait() == 0
    assert log_of(broken) == log_of(whole)
    assert len(log_of(whole)) == 6
    ours, theirs = (RunFolder(folder).find("last", with_training_state=True) for folder in (broken, whole))
    assert ours is not None
    assert theirs is not None
    assert ours[2]["model.safetensors"] == theirs[2]["model.safetensors"]
    states = [checkpoint.training_state_of(each[2], each[1])[0] for each in (ours, theirs)]
    assert all(torch.equal(states[0]["weights"][name], weight) for name, weight in states[1]["weights"].items())
    assert states[0]["progress"]["epoch"] == 6
    best = [treemem.load(folder).state_dict() for folder in (broken, whole)]
    assert all(torch.equal(best[0][name], weight) for name, weight in best[1].items())
