from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import treemem.induction
import treemem.nn
import treemem.ops

MODULES = [
    module.name
    for package in (treemem.induction, treemem.nn, treemem.ops)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_layer_and_head_has_an_example() -> None:
    for name in treemem.nn.__all__:
        documented = getattr(treemem.nn, name).__doc__ or ""
        if issubclass(getattr(treemem.nn, name), importlib.import_module("torch").nn.Module):
            assert ">>>" in documented or name in ("LeafEncoder", "TreeLayer"), name
