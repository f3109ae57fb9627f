from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import treemem.tasks.logical_inference
from treemem.tasks.logical_inference import PUBLISHED_FIGURES
from treemem.tasks.logical_inference.published import published_split

README = Path(treemem.tasks.logical_inference.__file__).parent / "README.md"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_sessions_of_the_readme_run_as_they_are_written() -> None:
    result = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10
    assert result.failed == 0


def test_the_training_code_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(import .*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    options = '"logical_inference/small", ["data.size=60", "training.epochs=1"]'
    assert len(blocks) == 1
    exec(blocks[0].replace('"logical_inference/small"', options), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit(" all ", maxsplit=1)[0] for line in lines if " all " in line] == [
        "Ordered Memory", "ON-LSTM", "LSTM", "Transformer", "Universal Transformer"
    ]  # fmt: skip


def test_the_published_table_of_the_readme_is_that_of_the_task() -> None:
    table = README.read_text(encoding="utf-8").split("## Published")[1]
    head, _, *rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("|")]
    columns = [column.strip() for column in head[1:]]
    shown = {}
    for network, *cells in rows:
        shown |= {
            (network.strip(), published_split(column)): cell.strip()
            for column, cell in zip(columns, cells, strict=False)
            if cell.strip()
        }
    assert shown == {
        (figure.network, figure.split): f"{100 * figure.value:.0f}"
        + ("" if figure.deviation is None else f" ± {100 * figure.deviation:.1f}")
        for figure in PUBLISHED_FIGURES
        if figure.metric == "accuracy"
    }


def test_the_readme_has_the_published_f1_of_trees() -> None:
    (figure,) = [figure for figure in PUBLISHED_FIGURES if figure.metric == "parsing f1"]
    sentence = f"{100 * figure.value:.1f} ± {100 * (figure.deviation or 0):.1f}"
    assert sentence in README.read_text(encoding="utf-8")
