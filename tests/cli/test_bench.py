from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import treemem
from treemem.cli import main


def test_arguments_and_exit_code_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], str]] = []

    def run(command: list[str], *, env: dict[str, str], check: bool) -> SimpleNamespace:
        ran.append((command, env["PYTHONPATH"]))
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["bench", "--only", "sst", "--json", "x.json"]) == 3
    assert main(["bench", "--", "--help"]) == 3
    assert [command[1:] for command, _ in ran] == [
        ["-m", "benchmarks", "--only", "sst", "--json", "x.json"], ["-m", "benchmarks", "--help"],
    ]  # fmt: skip
    assert ran[0][1].startswith(str(Path(treemem.__file__).parent.parent))


def test_an_installed_package_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., str]
) -> None:
    monkeypatch.setattr(treemem, "__file__", str(tmp_path / "treemem" / "__init__.py"))
    assert "the benchmarks are not part of the installed package" in failing("bench", "--quick")
