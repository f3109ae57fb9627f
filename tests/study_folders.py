"""A study's command run in a folder of a test, what it recorded there, and a stand-in for what must not run again."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def run_command(command: ModuleType, folder: Path, *arguments: str) -> int:
    """Run a module ``reproduce`` with all its files in ``folder``; what it exits with."""
    places = {"runs": "runs", "results": "results", "page": "page.md"}
    options = [part for name, place in places.items() for part in (f"--{name}", str(folder / place))]
    status: int = command.main([*options, *arguments])
    return status


def records(folder: Path, study: str) -> list[dict[str, Any]]:
    """The records of a study that was run in ``folder``."""
    return [json.loads(line) for line in (folder / "results" / f"{study}.jsonl").read_text().splitlines()]


def must_not_run(*_: object, **__: object) -> None:
    """Stands in for what was done before."""
    pytest.fail("this was done before")
