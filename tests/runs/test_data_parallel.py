from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import MoreX, toy_data
from training_runs import last_state

import treemem
from treemem import data_parallel
from treemem.data.examples import TaskData
from treemem.data_parallel import Processes, ProcessLostError, joined_processes, launched_processes
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.runs import FitResult, TrainingOptions, fit, run_study
from treemem.runs.training_loop import Trainer
from treemem.task import Task
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.trees import Forest

SCRIPT = Path(__file__).with_name("parallel_runs.py")
TOYS = 60
NETWORK = NetworkConfig("StackTreeLSTM", {"hidden_size": 4, "stack_size": 2})
DROPOUT = NETWORK.replace(dropout=0.3)
PONDERING = NetworkConfig("UniversalTransformer", {"hidden_size": 4, "num_heads": 1, "act": True})
TOKENS = NetworkConfig("OrderedMemory", {"hidden_size": 4, "slots": 3})
# 36 trees to train on: batches of 7 and a last one of 1, which one of two processes does alone
OPTIONS = TrainingOptions(
    epochs=4, batch_size=7, optimizer="adamw", learning_rate=0.02, schedule="cosine", averaging=0.9, clip=0.5,
    evaluation_batch_size=5, seed=3, accelerator="cpu",
)  # fmt: skip
PRECISE: dict[str, Any] = {"precision": "64-true"}
RECIPE = """
task: more_x
data: {count: 40}
networks:
  sum: {network: KindSum, options: {hidden_size: 3}}
training: {epochs: 2, batch_size: 7, accelerator: cpu}
seeds: [1, 2]
"""


def launch(*words: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    """Run a script, or with -m a module, in two processes."""
    search = os.pathsep.join([str(Path(treemem.__file__).parents[1]), str(SCRIPT.parents[1]), str(SCRIPT.parent)])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def task_and_data(count: int = TOYS, *, weighted: bool = False) -> tuple[Task, Forest | TaskData]:
    """The toy task and its data; or, weighted, these as a table whose rows and classes have weights."""
    if not weighted:
        return MoreX(), toy_data(count)
    forest = toy_data(count)
    columns = zip(forest, forest.tree_data["label"], forest.tree_data["split"], strict=True)
    rows = [
        {"tree": str(tree), "more": int(label), "split": split, "size": 0.02 * tree.size}
        for tree, label, split in columns
    ]
    task = task_from_table(rows, tree="tree", target="more", kind="classes", weight="size", class_weight="balanced")
    return task, task.make_data(TableDataOptions())


def alone(output: Path, *, resume: bool = False, weighted: bool = False, **changed: Any) -> FitResult:
    network = changed.pop("network", NETWORK)
    options = dataclasses.replace(OPTIONS, **changed)
    task, data = task_and_data(weighted=weighted)
    return fit(task, network, data, options, output=output, resume=resume)


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    state, average, _ = last_state(folder)
    return {**average, **{f"own {name}": weight for name, weight in state["weights"].items()}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have trained."""
    shared = tmp_path_factory.mktemp("parallel")
    (shared / "toy.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:  # the run is stopped after its second epoch
        end_epoch = Trainer.end_epoch

        def stopping(self: Any) -> None:
            end_epoch(self)
            if self.progress.epoch == 2:
                raise InterruptedError

        patch.setattr(Trainer, "end_epoch", stopping)
        with pytest.raises(InterruptedError):
            alone(shared / "of-0" / "of_one_process")
    done = launch(str(SCRIPT), str(shared))
    assert done.returncode == 0, done.stderr
    return shared


@pytest.fixture(scope="module")
def seen(folder: Path) -> list[dict[str, Any]]:
    """What each of them saw."""
    return [json.loads((folder / f"process-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("name", "changed", "tolerance"),
    [
        ("float32", {}, 1e-5),
        ("float64", PRECISE, 1e-10),
        ("by nodes", {"batch_size": 8, "nodes_per_batch": 20, "sort_by_height": True, **PRECISE}, 1e-10),
        ("tokens", {"network": TOKENS, "sort_by_length": True, **PRECISE}, 1e-10),
        ("auxiliary loss", {"network": PONDERING, "auxiliary_losses": {"ponder": 0.3}, **PRECISE}, 1e-10),
        ("weights", {"weighted": True, **PRECISE}, 1e-10),
        ("taken over", {}, 1e-5),
    ],
)
def test_two_processes_have_the_losses_and_weights_of_one(
    folder: Path, seen: list[dict[str, Any]], tmp_path: Path, name: str, changed: dict[str, Any], tolerance: float
) -> None:
    result = alone(tmp_path, **changed)
    losses = [record["loss"] for record in result.records]
    assert losses[-1] < losses[0]
    for each in seen:
        np.testing.assert_allclose(each[name]["loss"], losses, atol=tolerance, rtol=0)
        validation = [record["validation_loss"] for record in result.records]
        np.testing.assert_allclose(each[name]["validation_loss"], validation, atol=tolerance, rtol=0)
        assert each[name]["best_epoch"] == result.best_epoch
        for loss, values in each[name]["auxiliary"].items():
            np.testing.assert_allclose(values, [record[loss] for record in result.records], atol=tolerance, rtol=0)
    assert ("ponder_loss" in result.records[0]) == (name == "auxiliary loss")
    kept = folder / "of-0" / ("of_one_process" if name == "taken over" else name)
    ours, theirs = last_weights(kept), last_weights(tmp_path)
    for weight, value in theirs.items():
        np.testing.assert_allclose(ours[weight], value, atol=10 * tolerance, rtol=0, err_msg=weight)


def test_both_processes_are_given_the_same_best_model(seen: list[dict[str, Any]]) -> None:
    first, second = ([each[name] for name in ("float32", "unbroken", "taken over")] for each in seen)
    assert first == second
    assert not first[0]["is_training"]


def test_a_run_that_was_interrupted_resumes_to_the_same_weights_with_dropout(
    folder: Path, seen: list[dict[str, Any]]
) -> None:
    for each in seen:
        assert each["broken"] == each["unbroken"]
        assert each["broken"]["loss"] != each["float32"]["loss"]
    assert "of-0/broken in epoch 3 after step 4" in seen[0]["log"]
    ours, theirs = (last_weights(folder / "of-0" / name) for name in ("broken", "unbroken"))
    assert all(torch.equal(ours[weight], theirs[weight]) for weight in theirs)


def test_a_run_of_two_processes_goes_on_in_one(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(folder / "of-0" / "for one process", tmp_path / "left")
    with caplog.at_level("INFO", "treemem"):
        resumed = alone(tmp_path / "left", resume=True)
    assert "in epoch 3 after step 4" in caplog.text
    assert "2 processes trained until here, 1 go on" in caplog.text
    whole = alone(tmp_path / "whole")
    losses = [[record["loss"] for record in result.records] for result in (resumed, whole)]
    np.testing.assert_allclose(*losses, atol=1e-5, rtol=0)


def test_the_first_process_alone_writes_and_tells(folder: Path, seen: list[dict[str, Any]]) -> None:
    assert not (folder / "of-1").exists()
    assert len((folder / "of-0" / "float32" / "metrics.jsonl").read_text().splitlines()) == OPTIONS.epochs
    first, second = (each["log"] for each in seen)
    assert "epoch 4/4" in first
    assert second == ""


def test_an_error_that_one_process_meets_is_raised_in_both(folder: Path, seen: list[dict[str, Any]]) -> None:
    first, second = (each["errors"] for each in seen)
    assert first == second
    assert first["a run is there"].startswith(f"RecipeError: {folder / 'of-0' / 'float32'} holds a run")
    assert first["the first cannot write"] == "CheckpointError: the disk is full"
    assert first["the last cannot evaluate"] == "CellError: no number in the last process"
    assert first["other data"].endswith("the first one and process 2 differ in data")
    assert first["padding"].startswith("RecipeError: padding='left' makes an example depend on the others of its batch")
    assert first["no such loss"].endswith("names 'ponder'; the network's auxiliary losses: none")
    assert first["diverged"].startswith("DivergedError: the loss of epoch")


def test_gradients_are_summed_and_what_none_uses_has_none(seen: list[dict[str, Any]]) -> None:
    expected = [[[3.0, 3.0], [3.0, 3.0]], [2.0, 2.0, 2.0], None]
    assert [each["gradients"] for each in seen] == [expected, expected]


def test_the_command_is_told_once(folder: Path, seen: list[dict[str, Any]]) -> None:
    first, second = seen
    assert first["train"]["code"] == second["train"]["code"] == 0
    trained = folder / "of-0" / "trained"
    assert (trained / "table.md").read_text() in first["train"]["out"]
    assert "seed 2, epoch 2/2: loss" in (trained / "log.txt").read_text()
    for name, problem in (("no recipe", "did you mean"), ("evaluate", "treemem evaluate runs in one process")):
        assert first[name]["code"] == second[name]["code"] == 2
        assert first[name]["err"].startswith("error: ")
        assert problem in first[name]["err"]
        assert first[name]["err"].count("error") == 1
    assert all(second[name][stream] == "" for name in ("train", "no recipe", "evaluate") for stream in ("out", "err"))


@pytest.mark.parametrize("examples", [0, 1, 2, 3, 10, 64])
def test_a_batch_is_divided_into_parts_of_about_the_same_size_and_weight(examples: int) -> None:
    weights = np.random.default_rng(examples).integers(1, 50, examples)
    parts = [Processes(rank, 3).balanced_part(weights) for rank in range(3)]
    assert sorted(np.concatenate(parts)) == list(range(examples))
    assert all((np.diff(part) > 0).all() for part in parts)
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1
    sums = [weights[part].sum() for part in parts]
    assert max(sums) - min(sums) <= weights.max(initial=0)


def test_of_two_processes_neither_has_the_heavier_example_each_time() -> None:
    assert [int(Processes(rank, 2).balanced_part(np.arange(12)).sum()) for rank in (0, 1)] == [33, 33]


def test_a_single_process_has_all_and_waits_for_none() -> None:
    alone = Processes()
    places = np.array([4, 2, 9])
    assert alone.is_first
    np.testing.assert_array_equal(alone.part(places), places)
    np.testing.assert_array_equal(places[alone.balanced_part(places)], places)
    assert alone.gathered("own") == ["own"]
    assert alone.in_first(lambda: 3) == 3
    with pytest.raises(KeyError), alone.agreeing():
        raise KeyError


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (
            RuntimeError("Connection closed\n by peer"), ProcessLostError,
            r"has ended, or cannot be reached \(Connection closed by peer\)",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError, "out of memory"),
    ],
)  # fmt: skip
def test_a_process_that_cannot_be_reached_is_told_from_memory_that_runs_out(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception], message: str
) -> None:
    def failing(*_: object) -> None:
        raise raised

    monkeypatch.setattr(torch.distributed, "all_gather_object", failing)
    with pytest.raises(expected, match=message):
        Processes(rank=1, count=2).gathered("own")


def launch_as(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Set what torchrun sets: rank, count, and both on this machine."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for name, number in zip(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), numbers, strict=True):
        monkeypatch.setenv(name, str(number))


def test_a_launch_of_one_process_is_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    launch_as(monkeypatch, 0, 1, 0, 1)
    assert launched_processes() == Processes()
    launch_as(monkeypatch, 3, 4, 1, 2)
    assert launched_processes() == Processes(rank=3, count=4, local_rank=1, local_count=2)


def test_a_process_of_another_launcher_is_warned_once_that_it_works_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data_parallel._warn_of_another_launcher.cache_clear()
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for _ in range(2):
        assert joined_processes() == Processes()
    assert [record.message for record in caplog.records] == [
        "WORLD_SIZE is 2, but torchrun did not launch this process, which works by itself; launch with torchrun"
    ]


def test_what_is_no_training_is_refused_in_several_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launch_as(monkeypatch, 0, 2, 0, 2)
    with pytest.raises(RecipeError, match="a study runs without torchrun"):
        run_study(MoreX(), [], {}, folder=tmp_path, results=tmp_path / "results.jsonl")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(RecipeError, match="2 processes were launched on a machine with 1 CUDA devices"):
        launched_processes().device_of("cuda")


def test_the_script_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (SCRIPT.parents[2] / "docs" / "data_parallel_training.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert re.fullmatch(r"best epoch [12] of 2\n", capsys.readouterr().out)
