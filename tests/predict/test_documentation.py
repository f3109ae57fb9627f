from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "batch_evaluation.md"


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 2 1"
    assert [line.split()[0] for line in lines[1:3]] == ["1", "a7"]
    assert lines[3].startswith("[1, None] [")
    assert float(lines[4]) > 0
