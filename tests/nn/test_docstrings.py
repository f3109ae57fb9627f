from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest
from documentation.page_blocks import DOCS, python_blocks
from torch import nn

import treemem.induction
import treemem.nn
import treemem.ops

MODULES = {
    module.name: importlib.import_module(module.name)
    for package in (treemem.induction, treemem.nn, treemem.ops)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
}


@pytest.mark.parametrize("name", [name for name, module in MODULES.items() if ">>>" in inspect.getsource(module)])
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(MODULES[name])
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
