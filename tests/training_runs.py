"""Small runs that the tests of training share: how they are trained, stopped and compared."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.networks import NetworkConfig
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.runs.training_loop import FitResult

NETWORK = NetworkConfig("KindSum", {"hidden_size": 3, "dropout": 0.2})
OPTIONS = TrainingOptions(epochs=3, batch_size=8, learning_rate=0.05, seed=7, accelerator="cpu")
EVERYTHING: dict[str, Any] = {
    "optimizer": "adamw", "schedule": "cosine", "warmup": 0.3, "averaging": 0.9, "curriculum": 2, "clip": 0.02,
}  # fmt: skip
PLATEAU: dict[str, Any] = {
    "epochs": 8, "schedule": "plateau", "plateau_factor": 0.25, "plateau_patience": 1, "learning_rate": 0.01,
}  # fmt: skip
TIMES = {"seconds", "compute_seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


def run(
    output: Path, *, resume: bool = False, overwrite: bool = False, count: int = 60, **options: object
) -> FitResult:
    changed = dataclasses.replace(OPTIONS, **options)  # type: ignore[arg-type]
    return fit(MoreX(), NETWORK, toy_data(count), changed, output=output, resume=resume, overwrite=overwrite)


def last_state(output: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[dict[str, Any]]]:
    """The training state, the weights and the records of the last checkpoint."""
    found = RunFolder(output).find("last", with_training_state=True)
    assert found is not None
    return checkpoint.training_state_of(found[2], found[1])


def epoch_of_best(output: Path) -> int:
    found = RunFolder(output).find("best")
    return 0 if found is None else len(checkpoint.records_of(found[2], found[1]))


def numbers(output: Path) -> tuple[Any, ...]:
    """Everything of a run but its times: the log, the last weights, their average and the best ones."""
    lines = (output / "metrics.jsonl").read_text().splitlines()
    records = [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]
    state, weights, _ = last_state(output)
    return records, weights, state.get("weights", {}), treemem.load(output).state_dict()


def assert_same(first: Path, second: Path) -> None:
    ours, theirs = numbers(first), numbers(second)
    assert ours[0] == theirs[0]
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


class Stopped(Exception):
    pass


@contextmanager
def stopping(saves: int, *, only_best: bool = False) -> Iterator[None]:
    """Raise Stopped right after so many checkpoints, or best checkpoints, as if the process had been killed there."""
    save, left = RunFolder.save, saves

    def saving(self: RunFolder, *rest: Any, best: bool) -> int:
        nonlocal left
        number = save(self, *rest, best=best)
        left -= best or not only_best
        if left == 0:
            raise Stopped
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", saving)
        yield


def stopped_run(output: Path, saves: int, *, only_best: bool = False, resume: bool = False, **options: object) -> None:
    """Train until so many checkpoints are written."""
    with stopping(saves, only_best=only_best), pytest.raises(Stopped):
        run(output, resume=resume, **options)  # type: ignore[arg-type]


def run_in_pieces(output: Path, **options: object) -> FitResult:
    """Train, stopped after each checkpoint and resumed."""
    while True:
        with stopping(1), suppress(Stopped):
            return run(output, resume=True, **options)  # type: ignore[arg-type]


def rates_of_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learning rate of each step from here on, as it is taken."""
    rates: list[float] = []
    step = torch.optim.Adam.step

    def telling(self: torch.optim.Adam, *rest: object) -> object:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.Adam, "step", telling)
    return rates


def _run_command(folder: Path, words: list[str], prepare: Callable[[], object] | None) -> None:
    os.chdir(folder)
    if prepare is not None:
        prepare()
    raise SystemExit(main(words))


def commands_at_once(folder: Path, *commands: list[str], prepare: Callable[[], object] | None = None) -> list[int]:
    """Start commands in processes of their own at once, and return their exit codes.

    ``prepare`` is called first in each process.
    """
    copies = multiprocessing.get_context("forkserver")
    copies.set_forkserver_preload(
        ["toy_task", "treemem.runs.recipe_run", "treemem.runs.training_loop", "torch._dynamo", "lightning_fabric",
         "scipy.optimize", "matplotlib.pyplot", "treemem.explore"]
    )  # fmt: skip
    processes = [copies.Process(target=_run_command, args=(folder, words, prepare)) for words in commands]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [int(process.exitcode or 0) for process in processes]
