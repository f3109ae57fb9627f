"""Every golden file, one test each, named by it; ``--golden-dir`` reads another set of the same layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import sequence_files, stack_tree_files

SUFFIXES = (".npz", ".json")
CHECKS = {"stack_trees": stack_tree_files.check, "sequence": sequence_files.check}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path = metafunc.config.getoption("--golden-dir")
    files = sorted(path for path in folder.glob("*/*") if path.suffix in SUFFIXES)
    if not files:
        raise pytest.UsageError(f"there are no golden files in {folder}")
    metafunc.parametrize("path", files, ids=[path.relative_to(folder).as_posix() for path in files])


def test_golden(path: Path) -> None:
    if path.parent.name not in CHECKS:
        pytest.skip(f"no test yet for {path.parent.name}/{path.name}")
    CHECKS[path.parent.name](path)
