"""The Python in the README runs as it stands there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from engine_parity import HAS_DGL, NO_DGL

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {place}" for place in range(len(BLOCKS))])
def test_the_code_of_the_readme_runs(block: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "import_dgl" in block and not HAS_DGL:
        pytest.skip(NO_DGL)
    script = tmp_path / "readme.py"
    script.write_text(block, encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out


def test_the_readme_has_code() -> None:
    assert len(BLOCKS) >= 3
