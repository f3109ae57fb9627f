"""The pages of the site say what is so: their code runs and prints what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documentation.page_blocks import DOCS, python_blocks, run_page
from engine_parity import needs_dgl

import treemem.runs
from treemem.networks import NETWORKS
from treemem.task import TASKS

MODELS = [f"models/{path.name}" for path in sorted((DOCS / "models").glob("*.md")) if path.name != "index.md"]
OTHERS = [
    *("index.md", "tutorial.md", "own_trees.md", "training.md", "own_task.md", "induced_trees.md"),
    *("explanations.md", "sklearn.md", "cluster.md", "api/nn.md"),
    *("../tasks/equation_verification/README.md", "tasks/equation_completion.md"),
    *(
        f"../tasks/{name}/README.md"
        for name in ("language_modeling", "constituency", "sentiment", "syntactic_evaluation", "text_to_text")
    ),
]


@pytest.fixture(autouse=True)
def _in_a_folder_and_with_tasks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in (TASKS, NETWORKS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.mark.parametrize("page", [*MODELS, *OTHERS])
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page: str) -> None:
    assert python_blocks(DOCS / page)
    run_page(DOCS / page)


@needs_dgl
def test_the_code_on_pipelines_prints_the_shapes_that_its_comments_say() -> None:
    pytest.importorskip("torch_geometric", reason="torch-geometric is not installed")
    assert run_page(DOCS / "gnn_pipelines.md")[1] == [
        *("torch.Size([20, 3])", "torch.Size([10, 3])"),
        "torch.Size([4, 2, 4])",
        *("2 torch.Size([2, 1, 16])", "1 torch.Size([1, 1, 16])", "torch.Size([8, 16])"),
        "torch.Size([3, 4])",
        "[2, 1]",
    ]


def test_exported_programs_and_weights_give_the_same_numbers() -> None:
    assert run_page(DOCS / "export.md")[1] == ["True True", "True"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by the import of torch's compiler
def test_the_code_on_own_training_runs() -> None:
    assert run_page(DOCS / "own_training.md", ("import pytorch_lightning",))[1] == [
        "torch.float32 True",
        "True",
        "True",
    ]


@pytest.mark.filterwarnings("default")
def test_the_code_with_lightning_runs() -> None:
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    assert run_page(DOCS / "own_training.md")[1][-4:] == ["True", "torch.float32 True", "True", "True"]


def test_the_code_on_batch_evaluation_counts_answers_and_names_them() -> None:
    lines = run_page(DOCS / "batch_evaluation.md")[1]
    assert lines[0] == "3 2 1"
    assert [line.split()[0] for line in lines[1:3]] == ["1", "a7"]
    assert lines[3].startswith("[1, None] [")
    assert float(lines[4]) > 0


def test_the_reference_of_training_leaves_nothing_out() -> None:
    page = (DOCS / "api" / "runs.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"auto\w+:: treemem\.runs\.(\w+)", page)) == sorted(treemem.runs.__all__)


def test_a_page_that_shows_something_else_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1, 2)\n```\n```text\n1 ...\n```\n```python\nprint(3)\n```\n```text\n4\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md, block 2 shows\n4\n"):
        run_page(page)
