from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from documentation.page_blocks import DOCS, python_blocks
from torch import nn

import treemem.induction
import treemem.nn


def with_examples() -> Iterator[str]:
    """Yield the modules whose docstrings have examples that can run anywhere."""
    for module in pkgutil.walk_packages(treemem.__path__, "treemem."):
        path = getattr(module.module_finder, "path", "")
        name = module.name.rpartition(".")[2]
        file = Path(path, name, "__init__.py") if module.ispkg else Path(path, f"{name}.py")
        lines = file.read_text(encoding="utf-8").splitlines()
        if any(">>> " in line and "doctest: +SKIP" not in line for line in lines):
            yield module.name


@pytest.mark.parametrize("name", [*with_examples()])
def test_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_every_public_layer_and_head_has_an_example() -> None:
    for name in treemem.nn.__all__:
        documented = getattr(treemem.nn, name).__doc__ or ""
        if issubclass(getattr(treemem.nn, name), nn.Module):
            assert ">>>" in documented or name in ("LeafEncoder", "Memory", "StepCell", "TreeLayer"), name


def test_every_public_function_of_induction_has_an_example_or_is_called_on_its_page() -> None:
    page = "".join(block.code for block in python_blocks(DOCS / "induced_trees.md"))
    for name in treemem.induction.__all__:
        made = getattr(treemem.induction, name)
        if inspect.isfunction(made) and name != "tree_svg":  # write_tree_page shows it
            assert ">>>" in (made.__doc__ or "") or f"{name}(" in page, name
