from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import treemem.tasks.listops
from treemem.tasks.listops import PUBLISHED_FIGURES

METRICS = ("accuracy", "parsing f1")
README = Path(treemem.tasks.listops.__file__).parent / "README.md"
MODULES = [
    "treemem.tasks.listops.generation.evaluation",
    "treemem.tasks.listops.generation.expression_sets",
    "treemem.trees.bracketed_lines",
    "treemem.trees.listops",
    "treemem.trees.listops_arrays",
]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_sessions_of_the_readme_run_as_they_are_written() -> None:
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10
    assert result.failed == 0


def test_the_training_code_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(import .*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    sizes = [f"data.{split}_size=40" for split in ("training", "validation", "test")]
    small = f'"listops/small", {[*sizes, "data.pool=0", "training.epochs=1", "training.curriculum=0"]!r}'
    assert len(blocks) == 1
    exec(blocks[0].replace('"listops/small"', small), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(maxsplit=1)[0] for line in lines if " 50 " in line] == [
        f"{name} 50 40" for name in ("Ordered Memory", "ON-LSTM", "LSTM", "Transformer", "Universal Transformer")
    ]


def test_the_published_table_of_the_readme_is_that_of_the_task() -> None:
    table = README.read_text(encoding="utf-8").split("## Published")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines() if line.startswith("|")][2:]
    shown = {(network, metric): cell for network, *cells in rows for metric, cell in zip(METRICS, cells, strict=True)}
    assert {key: cell for key, cell in shown.items() if cell} == {
        (figure.network, figure.metric): f"{100 * figure.value:.4g}"
        if figure.deviation is None
        else f"{100 * figure.value:.4g} ± {100 * figure.deviation:.2g}"
        for figure in PUBLISHED_FIGURES
    }
