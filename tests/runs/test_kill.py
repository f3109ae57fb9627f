from __future__ import annotations

import json
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import torch
from killed_run import train

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder

TIMES = {"seconds", "compute_seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


# When the first checkpoint is written and not yet renamed; while the files of a later one are written; when one has its
# name and the log lacks its epoch; and within an epoch.
MOMENTS = [("rename", 1), ("fsync", 15), ("rename", 4), ("step", 20)]


def start(output: Path, *moment: Any) -> Any:
    """Start a process that trains: a copy of one that has imported all that training needs."""
    copies = multiprocessing.get_context("forkserver")
    copies.set_forkserver_preload(
        ["treemem.runs.fit", "treemem.runs.training_loop", "torch._dynamo", "lightning_fabric", "scipy.optimize"]
    )
    process = copies.Process(target=train, args=(output, *moment))
    process.start()
    return process


def ended(process: Any) -> int:
    process.join()
    return int(process.exitcode)


def log_of(output: Path) -> list[dict[str, object]]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def test_a_killed_process_resumes_to_the_numbers_of_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    unbroken = start(whole)
    left_behind = set()
    reported: list[dict[str, object]] = []
    for moment in MOMENTS:
        assert ended(start(broken, *moment)) == -signal.SIGKILL, moment
        left_behind |= {path.name for path in broken.rglob(".*.tmp")}
        if (broken / "checkpoints.json").is_file():
            done = RunFolder(broken).find("last", with_training_state=True)
            assert done is not None
            records = checkpoint.records_of(done[2], done[1])
            assert len(records) >= len(reported), "no epoch that the log reported is lost"
            reported = log_of(broken)
    assert ".000001.tmp" in left_behind
    assert ended(start(broken)) == 0
    assert not list(broken.rglob(".*.tmp"))
    assert ended(unbroken) == 0
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
