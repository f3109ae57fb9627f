"""The examples that help shows run as they stand there, one after the other, training with small budgets."""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from published_state_dicts import whole_equation_network

from treemem.cli import main
from treemem.cli.program import COMMANDS
from treemem.tasks import queue
from treemem.tasks.equation_verification import data as equations

BUDGET = {
    "train equation_verification/small": ["data.size=200", "training.epochs=1", "training.accelerator=cpu"],
    "train listops/small": [
        *("data.training_size=60", "data.validation_size=20", "data.test_size=20", "data.pool=0", "seeds=[1]"),
        *("training.epochs=1", "training.curriculum=0", "training.threads=1", "networks.LSTM.options.hidden_size=4"),
    ],
    "sweep equation_verification/small": ["data.size=200", "training.epochs=1", "training.accelerator=cpu"],
}


def test_the_examples_of_help_run_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed_on: list[list[str]] = []
    run = subprocess.run

    def benchmarks(command: list[str], **options: Any) -> Any:
        if "benchmarks" not in command:  # the compiler
            return run(command, **options)
        handed_on.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", benchmarks)
    once = functools.cache(equations.generate_equations)  # four of the examples want the same ones
    monkeypatch.setattr(equations, "generate_equations", once)
    few = queue.read_queue()[:3]  # the jobs of all studies are listed by the tests of the queue
    monkeypatch.setattr(queue, "read_queue", lambda: few)
    torch.save(whole_equation_network(4), folder / "model-97.checkpoint")
    results = Path(__file__).parents[2] / "docs" / "results"
    for name in ("listops", "comparison"):  # the records that the examples make pages of
        shutil.copytree(results / name, folder / "docs" / "results" / name)
    for command in COMMANDS.values():
        assert command.examples
        for example in command.examples:
            program, *words = shlex.split(example)
            assert program == "treemem"
            words += BUDGET.get(" ".join(words[:2]), [])
            capsys.readouterr()
            assert main(words) == 0, (example, capsys.readouterr().err)
    assert handed_on[0][1:4] == ["-m", "benchmarks", "--quick"]
    assert (folder / "equations.jsonl").stat().st_size > 1000
    assert sorted(path.name for path in (folder / "lists").iterdir()) == [
        "data.md", "test.csv", "train.csv", "validation.csv",
    ]  # fmt: skip
    assert (folder / "comparison.png").exists()
    assert (folder / "scores.json").exists()
