"""Check that an installed treemem is complete: `python check_install.py SITE_PACKAGES`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import treemem

site = Path(sys.argv[1]).resolve()
assert Path(treemem.__file__).resolve().is_relative_to(site), f"imported {treemem.__file__}, not the one in {site}"
for module in pkgutil.walk_packages(treemem.__path__, "treemem."):
    importlib.import_module(module.name)

from treemem.task import load_task, task_names  # noqa: E402
from treemem.training import Recipe  # noqa: E402

assert "equation_verification" in task_names()
task = load_task("equation_verification")
recipes = sorted((Path(treemem.__file__).parent / "tasks" / "equation_verification" / "recipes").glob("*.yaml"))
assert recipes, "the recipes are not in the package"
print(
    f"{len(sys.modules)} modules import; {task.name}: {[recipe.stem for recipe in recipes]}; {Recipe.__name__} is there"
)
