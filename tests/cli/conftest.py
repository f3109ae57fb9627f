"""What the tests of the command share: an empty folder to work in, and a recipe that trains in no time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_task  # noqa: F401  (registers the task more_x)

from treemem.cli import main

RECIPE = """
task: more_x
data: {count: 60}
networks:
  sum: {network: KindSum, options: {hidden_size: 3}}
  small sum: {network: KindSum, options: {hidden_size: 1}}
training: {epochs: 2, learning_rate: 0.05, batch_size: 8, accelerator: cpu}
"""

Failing = Callable[..., str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: an empty one but for ``toy.yaml``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Failing:
    """Run a command that must fail, and give what it says: an error and no traceback."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(words) == 2
        said = capsys.readouterr()
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert "Traceback" not in said.err
        return said.err[said.err.index("error: ") :]

    return run


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both networks from two seeds, not to be changed."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.yaml").write_text(RECIPE)
    assert main(["train", str(folder / "toy.yaml"), "--seeds", "1", "2", "-o", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def trained(folder: Path, toy_run: Path) -> Path:
    """The same run as the folder ``run``."""
    shutil.copytree(toy_run, folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one network on 35 examples."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "toy.yaml").write_text(RECIPE)
    words = ["--networks", "sum", "data.count=35", "training.epochs=1"]
    assert main(["train", str(folder / "toy.yaml"), "-o", str(folder / "one"), *words]) == 0
    return folder / "one"
