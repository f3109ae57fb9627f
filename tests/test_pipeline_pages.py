"""The Python in the pages on pipelines and on exports runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_parity import needs_dgl

DOCS = Path(__file__).parent.parent / "docs"


def run_page(page: str, without: str = "never") -> None:
    """Run the blocks of a page but those that import ``without``."""
    names: dict[str, object] = {}
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if f"import {without}" not in block:
            exec(block, names)


@needs_dgl
def test_the_code_on_pipelines_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric", reason="torch-geometric is not installed")
    run_page("gnn_pipelines.md")
    assert capsys.readouterr().out.splitlines() == [
        *("torch.Size([20, 3])", "torch.Size([10, 3])"),
        "torch.Size([4, 2, 4])",
        *("2 torch.Size([2, 1, 16])", "1 torch.Size([1, 1, 16])", "torch.Size([8, 16])"),
        "torch.Size([3, 4])",
    ]


def test_the_code_on_exports_runs_and_programs_and_weights_give_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page("export.md")
    assert capsys.readouterr().out.splitlines() == ["True True", "True"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by the import of torch's compiler
def test_the_code_on_own_training_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_page("own_training.md", without="pytorch_lightning")
    assert capsys.readouterr().out.splitlines() == ["torch.float32 True", "True", "True"]


@pytest.mark.filterwarnings("default")
def test_the_code_with_lightning_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    run_page("own_training.md")
    assert capsys.readouterr().out.splitlines()[-4:] == ["True", "torch.float32 True", "True", "True"]
