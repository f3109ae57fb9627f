from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_pages import table_below

from treemem.runs.recipe import load_recipe
from treemem.task import TASKS
from treemem.tasks.logical_inference.published import published_split

FOLDER = Path(importlib.import_module("treemem.tasks").__file__ or "").parent
README = {name: (FOLDER / name / "README.md").read_text(encoding="utf-8") for name in ("listops", "logical_inference")}
SMALLER = {
    "listops": [
        *("data.training_size=40", "data.validation_size=40", "data.test_size=40", "data.pool=0"),
        *("training.epochs=1", "training.curriculum=0", "training.threads=1"),
    ],
    "logical_inference": ["data.size=60", "training.epochs=1"],
}
LAST_GROUP = {"listops": " 50 40", "logical_inference": " all"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", README)
def test_the_sessions_of_a_readme_run_as_they_are_written(name: str) -> None:
    path = str(FOLDER / name / "README.md")
    result = doctest.testfile(path, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("name", README)
def test_the_training_code_of_a_readme_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(import .*?)^```", README[name], re.MULTILINE | re.DOTALL)
    exec(code.replace(f'"{name}/small"', f'"{name}/small", {SMALLER[name]!r}'), {})
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split(LAST_GROUP[name])[0] for line in lines if f"{LAST_GROUP[name]} " in line]
    assert shown == (["LSTM"] if name == "listops" else list(load_recipe(f"{name}/small").networks))


def published_table(name: str) -> dict[tuple[str, str], str]:
    """The cells of the table of published figures by network and column."""
    head, *rows = table_below(README[name], "## Published")
    cells = {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=False)}
    return {place: cell for place, cell in cells.items() if cell}


def shown(figure: Any, value: str, deviation: str) -> str:
    spread = "" if figure.deviation is None else f" ± {100 * figure.deviation:{deviation}}"
    return f"{100 * figure.value:{value}}{spread}"


def test_the_published_table_of_listops_is_that_of_the_task() -> None:
    table = published_table("listops")
    columns = list(dict.fromkeys(column for _, column in table))
    expected = {
        (figure.network, columns[figure.metric == "parsing f1"]): shown(figure, ".4g", ".2g")
        for figure in TASKS.find("listops").published
    }
    assert {place: cell for place, cell in table.items() if place[1] in columns[:2]} == expected


def test_the_published_table_of_logical_inference_is_that_of_the_task() -> None:
    figures = TASKS.find("logical_inference").published
    assert {
        (network, published_split(column)): cell
        for (network, column), cell in published_table("logical_inference").items()
    } == {
        (figure.network, figure.split): shown(figure, ".0f", ".1f") for figure in figures if figure.metric == "accuracy"
    }
    (f1,) = [figure for figure in figures if figure.metric == "parsing f1"]
    assert shown(f1, ".1f", ".1f") in README["logical_inference"]
