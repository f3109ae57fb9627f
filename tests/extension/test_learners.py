"""Learners that do not classify a tuple of trees, each through the ordinary commands and the ordinary ``fit``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import treemem
from treemem.records import read_records

FOLDER = Path(__file__).parent
ROOT = Path(treemem.__file__).parents[1]
TIMES = {"seconds", "compute_seconds", "loader_seconds", "examples_per_second", "validation_seconds"}

# task: what its recipe says, lines to predict, the predictions of a trained model
OF_TREES = "own: {network: TreeLSTM, options: {hidden_size: 12}}"
PROOFS = {
    "odd_x": ("node accuracy", ["(f x y)", "(f x x)"], [[1, 0, 1], [1, 1, 0]]),
    "first_leaf": ("accuracy", ["(f x y)", "(f z x)"], ["x", "z"]),
}
OF_TEXT = """own: {network: LanguageModel, options: {hidden_size: 12, num_layers: 2, chunk_size: 4}}
task_options: {words: 100}
data: {training_size: 300, validation_size: 30, test_size: 30}"""
NETWORKS = {"odd_x": OF_TREES, "first_leaf": OF_TREES, "language_modeling": OF_TEXT}


def run(arguments: list[str], cwd: Path, launcher: tuple[str, ...] = ()) -> None:
    command = [sys.executable, *launcher, str(FOLDER / "driver.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TREEMEM_COMPILE": "0"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def recipe(task: str, folder: Path) -> str:
    path = folder / f"{task}.yaml"
    path.write_text(
        f"task: {task}\nnetworks:\n  {NETWORKS[task]}\n"
        "training: {epochs: 12, batch_size: 8, learning_rate: 0.03, checkpoint_steps: 10, seed: 1}\n"
    )
    return str(path)


def log_of(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "own" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which one process has done all that the tests look at, but for the training in two processes."""
    place = tmp_path_factory.mktemp("contract")
    killed, others = [], []
    for task, (_, lines, _) in PROOFS.items():
        (place / f"{task}.txt").write_text("".join(f"{line}\n" for line in lines))
        train, whole = ["train", recipe(task, place), "-o"], f"{task}-whole"
        killed += ["++", "--die", "14", *train, f"{task}-broken"]  # before the process has threads, as it forks
        others += ["++", *train, f"{task}-broken", "++", *train, whole]
        others += ["++", "predict", f"{whole}/own", f"{task}.txt", "-o", f"{task}.jsonl"]
        others += ["++", "explore", f"{whole}/own", f"{task}.txt", "-o", f"{task}.html"]
    others += ["++", "train", recipe("language_modeling", place), "training.epochs=2", "-o", "one"]
    run([*killed, *others][1:], place)
    return place


@pytest.mark.parametrize("task", PROOFS)
def test_a_learner_is_trained_killed_resumed_scored_predicted_and_explored(task: str, done: Path) -> None:
    metric, lines, predictions = PROOFS[task]
    assert log_of(done / f"{task}-broken") == log_of(done / f"{task}-whole")

    scores = [record.fields for record in read_records(done / f"{task}-whole" / "own" / "results.jsonl")]
    overall = next(score for score in scores if score["examples"] and list(score.values())[1] == "all")
    assert overall[metric] > 0.6

    answers = [record.fields for record in read_records(done / f"{task}.jsonl")]
    assert [answer["error"] for answer in answers] == [None] * len(lines)
    assert [answer["prediction"] for answer in answers] == predictions
    assert lines[0].split()[-1].strip("()") in (done / f"{task}.html").read_text()


def test_two_processes_train_together(done: Path, tmp_path: Path) -> None:
    sampling, train = (
        ["train", recipe(task, tmp_path), "training.epochs=2"] for task in ("first_leaf", "language_modeling")
    )
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run([*sampling, "-o", "samples", "++", *train, "-o", "two"], tmp_path, launcher=launcher)
    assert len(log_of(tmp_path / "samples")) == 2  # not those of one process: each samples from a stream of its own
    for ours, theirs in zip(log_of(tmp_path / "two"), log_of(done / "one"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
