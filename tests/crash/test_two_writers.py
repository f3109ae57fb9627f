"""A command whose output another process is writing is refused, and runs when that one is done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from crash.kill_points import LISTS, SWEEP, predict, succeed, train, write_equations_and_model, write_recipe

from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.records import locked

Lock = Callable[[], AbstractContextManager[None]]
ROWS: list[tuple[Callable[[], object], Lock, tuple[str, ...], str]] = [
    (write_recipe, RunFolder("run/sum/seed-1").locked, train("--seeds", "1"), "is training in run/sum/seed-1"),
    (write_recipe, RunFolder("trials").locked, SWEEP, "is training in trials"),
    *(
        (write_equations_and_model, lambda: locked(Path("out.jsonl")), predict("out.jsonl", *words), "is writing out")
        for words in ((), ("--overwrite",), ("--resume",))
    ),
    (Path("lists").mkdir, lambda: locked(Path("lists")), (*LISTS, "-o", "lists", "--overwrite"), "is writing lists"),
]


@pytest.mark.parametrize(("prepare", "lock", "words", "problem"), ROWS, ids=[" ".join(row[2][:5]) for row in ROWS])
def test_the_second_of_two_commands_is_told_of_the_first(
    prepare: Callable[[], object], lock: Lock, words: tuple[str, ...], problem: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    prepare()
    with lock():
        assert main(words) == 2
    assert f"error: another process {problem}" in capsys.readouterr().err
    succeed(*words)()
