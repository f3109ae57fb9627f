"""The pages of the site say what is so: their code runs and prints what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documentation.page_blocks import DOCS, python_blocks, run_page

import treemem.runs
from treemem.task import TASKS

MODELS = [f"models/{path.name}" for path in sorted((DOCS / "models").glob("*.md")) if path.name != "index.md"]
OTHERS = [
    *("index.md", "tutorial.md", "own_trees.md", "training.md", "own_task.md", "induced_trees.md"),
    *("../tasks/equation_verification/README.md", "tasks/equation_completion.md"),
    *(
        f"../tasks/{name}/README.md"
        for name in ("language_modeling", "constituency", "sentiment", "syntactic_evaluation")
    ),
]


@pytest.fixture(autouse=True)
def _in_a_folder_and_with_tasks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_targets", dict(TASKS._targets))


@pytest.mark.parametrize("page", MODELS)
def test_the_equations_of_a_model_by_hand_are_what_its_layer_computes(page: str) -> None:
    assert python_blocks(DOCS / page)
    run_page(DOCS / page)


@pytest.mark.parametrize("page", OTHERS)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page: str) -> None:
    assert python_blocks(DOCS / page)
    run_page(DOCS / page)


def test_the_reference_of_training_leaves_nothing_out() -> None:
    page = (DOCS / "api" / "runs.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"auto\w+:: treemem\.runs\.(\w+)", page)) == sorted(treemem.runs.__all__)


def test_a_page_that_shows_something_else_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1, 2)\n```\n```text\n1 ...\n```\n```python\nprint(3)\n```\n```text\n4\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md, block 2 shows\n4\n"):
        run_page(page)
