from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treemem.cli import main

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_page_is_written_from_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RESULTS / "listops", tmp_path / "records")
    words = ["reproduce", "listops", "--results", str(tmp_path / "records"), "--page", str(tmp_path / "page.md")]
    assert main(words) == 0
    said = capsys.readouterr()
    assert f"page: {tmp_path / 'page.md'}" in said.out
    assert "no study is named, so nothing is trained, and the page is written from" in said.err
    assert "name studies: beam_trees" in said.err
    assert "| Ordered Memory        | 113,483 |" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["listop"], "no task 'listop'; did you mean listops"),
        (["listops", "big"], "listops has no study 'big'"),
        (
            ["equation_verification/completoin"],
            "there are no studies in the folder of equation_",
        ),
        (
            ["listops", "--results", "none"],
            "there are no records in none; name studies of listops to run: beam_trees, ",
        ),
        (["listops", "small", "--files", "x"], "--files x: write NAME=PATH"),
        (["comparison", "--files", "x=x"], "--files x=x: only the study learned of comparison scores further files"),
        (["listops", "--page", "none/page.md"], "there is no folder none"),
        (["claims", "small"], "claims has no studies; leave out small"),
        (["comparison", "smal"], "comparison has no study 'smal'; did you mean small"),
        (["comparison", "published-logic"], "the part published-logic needs --data, the folder of the published files"),
        (["logical_inference", "gold-trees"], "gold-trees needs --data, the folder of the published files"),
    ],
)
def test_a_wrong_command_is_told(
    words: list[str], message: str, tmp_path: Path, failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert message in failing("reproduce", *words)
