"""Every golden file, one test each, named by it; ``--golden-dir`` reads another set of the same layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import stack_tree_files

SUFFIXES = (".npz", ".json")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path = metafunc.config.getoption("--golden-dir")
    files = sorted(path for path in folder.glob("*/*") if path.suffix in SUFFIXES)
    if not files:
        raise pytest.UsageError(f"there are no golden files in {folder}")
    metafunc.parametrize("path", files, ids=[path.relative_to(folder).as_posix() for path in files])


def test_golden(path: Path) -> None:
    if path.parent.name != "stack_trees":
        pytest.skip(f"no test yet for {path.parent.name}/{path.name}")
    stack_tree_files.check(path)
