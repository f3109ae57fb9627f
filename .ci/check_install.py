"""Check that an installed treemem is complete: ``python check_install.py SITE_PACKAGES``."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
import tempfile
from pathlib import Path

import treemem
from treemem.explore import explore
from treemem.runs import load_recipe, recipe_names
from treemem.task import TASKS
from treemem.tasks.syntactic_evaluation import template_pairs

site = Path(sys.argv[1]).resolve()
assert Path(treemem.__file__).resolve().is_relative_to(site), f"imported {treemem.__file__}, not the one in {site}"
modules = [module.name for module in pkgutil.walk_packages(treemem.__path__, "treemem.")]
for module in modules:
    importlib.import_module(module)
assert {"equation_verification", "listops", "logical_inference"} <= set(TASKS.names()), TASKS.names()
assert template_pairs("simple_agrmt"), "the templates of minimal pairs are not in the package"
for name in TASKS.names():
    readme = Path(sys.modules[TASKS.find(name).__module__].__file__ or "").parent / "README.md"
    assert readme.is_file(), f"{readme} is not in the package"
with tempfile.TemporaryDirectory() as folder:
    page = explore(treemem.load_pretrained(), ["x + 1 = 1 + x"], Path(folder) / "page.html").read_text(encoding="utf-8")
assert page.startswith("<!doctype html>"), "the explorer's page is not in the package"
assert recipe_names(), "the recipes are not in the package"
for name in recipe_names():
    load_recipe(name)
assert treemem.load_pretrained().predict(["x + 1 = 1 + x"]) > 0.5, "the trained model that comes along is not that"
(script,) = importlib.metadata.entry_points(group="console_scripts", name="treemem")
assert script.load()(["tasks", "list"]) == 0, "the command treemem does not list the tasks"
print(f"{len(modules)} modules import; recipes {', '.join(recipe_names())}")
