"""Each test imports in a process of its own, with made-up packages before the real ones on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from engine_parity import needs_dgl

ROOT = Path(__file__).parents[2]

FAKE_DGL = """
import os
assert os.environ["DGLBACKEND"] == "pytorch", "the backend must be named before the import"
from . import graphbolt
__version__ = "2.1.0"
class DGLGraph: pass
"""
IMPORT_TWICE = """
import sys, warnings
from treemem.dgl_import import MissingDGLError, import_dgl
from treemem.errors import TreememError
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        first, second = import_dgl(), import_dgl()
        print(first is second, first.__version__)
    except MissingDGLError as error:
        assert isinstance(error, TreememError) and isinstance(error, ImportError)
        print(f"MissingDGLError: {error}", sorted(name for name in sys.modules if name.split(".")[0] == "dgl"))
for warning in caught:
    print(warning.message)
"""


def run(script: str, *folders: Path, home: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*folders, ROOT))}
    environment.pop("DGLBACKEND", None)
    environment["HOME"] = str(home)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def write_package(folder: Path, name: str, **modules: str) -> None:
    (folder / name).mkdir(parents=True)
    for module, text in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(text)


def test_a_graphbolt_that_does_not_load_is_left_out_with_one_warning(tmp_path: Path) -> None:
    write_package(tmp_path, "dgl", __init__=FAKE_DGL, graphbolt="import a_package_that_is_not_there")
    told = run(IMPORT_TWICE, tmp_path, home=tmp_path).splitlines()
    assert told == [
        "True 2.1.0",
        "dgl 2.1.0 was imported without dgl.graphbolt, which does not load here (No module named "
        "'a_package_that_is_not_there'); treemem does not use it",
    ]


def test_a_dgl_that_cannot_be_imported_at_all_names_the_pythons_that_have_one(tmp_path: Path) -> None:
    write_package(tmp_path, "dgl", __init__="raise OSError('libdgl.so is torn')")
    (told,) = run(IMPORT_TWICE, tmp_path, home=tmp_path).splitlines()
    assert told.startswith("MissingDGLError: this needs DGL, and it cannot be imported on Python 3.")
    assert "libdgl.so is torn" in told
    assert "wheels for Python 3.10 and 3.11 (pip install dgl==1.1.3) and for 3.12 (pip install dgl==2.1.0" in told
    assert told.endswith("[]")


def test_a_missing_dgl_is_said_to_be_missing(tmp_path: Path) -> None:
    hide = f"import sys\nsys.modules['dgl'] = None\n{IMPORT_TWICE}"
    told = run(hide, home=tmp_path)
    assert "it is not installed" in told


@needs_dgl
def test_importing_dgl_writes_nothing_and_prints_nothing(tmp_path: Path) -> None:
    script = (
        "import warnings\nwarnings.simplefilter('ignore')\n"
        "from treemem.dgl_import import import_dgl\nassert import_dgl().DGLGraph"
    )
    assert run(script, home=tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
