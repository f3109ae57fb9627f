from __future__ import annotations

import dataclasses
import runpy
import sys
from typing import get_type_hints

import pytest

from treemem.cli import main
from treemem.task import TASKS
from treemem.type_words import type_words


def test_every_task_is_listed_with_recipes_and_trained_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "list"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for name in TASKS.names():
        assert f"{name}: " in printed
    assert "listops/beam_trees; listops/published" in printed
    assert "trained models: equation_verification" in printed


@pytest.mark.parametrize(
    "command",
    [
        "treemem reproduce comparison",
        "python -m treemem.tasks.constituency --help",
        "python -m treemem.tasks.equation_verification.completion --help",
        "python -m treemem.tasks.syntactic_evaluation --help",
    ],
)
def test_tasks_with_a_command_of_their_own_are_listed_with_it(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["tasks", "list"]) == 0
    assert f"  {command}\n" in capsys.readouterr().out
    if command.startswith("python -m"):
        monkeypatch.setattr(sys, "argv", command.split()[2:])
        monkeypatch.delitem(sys.modules, f"{command.split()[2]}.__main__", raising=False)  # imported by other tests
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(command.split()[2], run_name="__main__", alter_sys=True)
        assert ended.value.code == 0


@pytest.mark.parametrize("name", ["equation_verification", "listops", "logical_inference", "sentiment"])
def test_every_option_of_a_tasks_data_is_described_with_its_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", "describe", name]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    task = TASKS.find(name)
    for network in task.networks:
        assert f"{network}: " in printed
    for owner in (task, task.data_options):
        types = get_type_hints(owner)
        for part in dataclasses.fields(owner):  # type: ignore[arg-type]
            described = f"{part.name} ({type_words(types[part.name])}, default "
            assert described in printed
            assert len(printed.split(described)[1].split("): ")) > 1, f"{part.name} is not documented"
    for figure in task.published:
        assert figure.network in printed
        assert figure.source in printed
    for field in task.record_fields:
        assert f"{field}: " in printed
