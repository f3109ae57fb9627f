"""The Python in the README runs as it stands there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from documentation.page_blocks import python_blocks
from engine_parity import HAS_DGL, NO_DGL

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block.code for block in python_blocks(ROOT / "README.md")]


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {place}" for place in range(len(BLOCKS))])
def test_the_code_of_the_readme_runs(block: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "import_dgl" in block and not HAS_DGL:
        pytest.skip(NO_DGL)
    script = tmp_path / "readme.py"
    script.write_text(block, encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out


def test_the_readme_has_code_and_its_links_lead_somewhere() -> None:
    assert len(BLOCKS) >= 3
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_readme_leads_to_the_page_of_every_model() -> None:
    pages = {f"docs/models/{path.name}" for path in (ROOT / "docs" / "models").glob("*.md")}
    assert sorted(page for page in pages - {"docs/models/index.md"} if f"({page})" not in README) == []
