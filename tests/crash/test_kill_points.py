"""Every command is killed, and the same command goes on to the same result.

Each command is killed at one moment of each kind. With ``-m slow``, it is killed at each of its moments.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from crash.kill_points import ROWS, Row, every
from crash.moments import Moment, interrupted_at, moments_of
from predict.fake_ray import Here

from treemem.cli import main
from treemem.cli.program import COMMANDS
from treemem.predict import chunks, shards


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without plots, and with Ray in this process."""
    monkeypatch.setattr("treemem.explore.plot_accuracy", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "ray", Here())
    shards._predictor.cache_clear()


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 3)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_command_killed_at_a_moment_goes_on_to_the_result_of_an_unbroken_one(
    row: Row, work: Path, tmp_path: Path
) -> None:
    check_kills(row, row.chosen, work, tmp_path / "moments")


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_command_killed_at_any_moment_goes_on_to_the_result_of_an_unbroken_one(
    row: Row, work: Path, tmp_path: Path
) -> None:
    check_kills(row, every, work, tmp_path / "moments")


def check_kills(row: Row, choose: Callable[[Sequence[Moment]], Sequence[Moment]], work: Path, kept: Path) -> None:
    row.prepare()
    moments = choose(moments_of(row.run, work, kept))
    assert moments
    whole = row.result(work)
    problems = {}
    for moment in moments:
        put(moment.folder, work)
        try:
            row.at_once(work, whole)
            row.run_again()
            assert row.result(work) == whole
            assert not list(work.rglob(".*.tmp"))
        except Exception as problem:
            problems[moment.name] = problem
    assert not problems, "\n".join(f"{name}: {problem!s:.300}" for name, problem in problems.items())


def put(state: Path, work: Path) -> None:
    """Make the current folder a copy of a state."""
    os.chdir(state)
    shutil.rmtree(work)
    shutil.copytree(state, work, symlinks=True)
    os.chdir(work)


@pytest.mark.parametrize("row", {row.command[0]: row for row in ROWS if not callable(row.command)}.values(), ids=str)
def test_a_command_that_is_interrupted_says_how_to_go_on_and_goes_on(
    row: Row, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C comes at the first moment and halfway."""
    assert isinstance(row.command, tuple)
    row.prepare()
    shutil.copytree(work, tmp_path / "before")
    moments = moments_of(row.run, work, tmp_path / "moments")
    count = sum("half written" not in moment.name for moment in moments)
    whole = row.result(work)
    for number in sorted({1, count // 2}):
        put(tmp_path / "before", work)
        capsys.readouterr()
        with interrupted_at(number, work):
            assert main(row.command) == 130
        stopped = COMMANDS[row.command[0]].stopped
        assert capsys.readouterr().err.endswith(f"stopped{stopped and f'; {stopped}'}\n")
        row.run_again()
        assert row.result(work) == whole
