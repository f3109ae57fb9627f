"""The one place that imports DGL."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType

from treemem.errors import TreememError

_GRAPHBOLT = "dgl.graphbolt"


class MissingDGLError(TreememError, ImportError):
    """DGL is needed for what was asked and cannot be imported."""


def import_dgl() -> ModuleType:
    """The ``dgl`` package, imported on first need.

    Naming the backend beforehand keeps DGL from writing ``~/.dgl`` and from printing. DGL 2.1.0 comes with a library,
    graphbolt, that loads under no torch after 2.2; nothing here uses it, so where the plain import fails an empty
    module takes its place, with one warning.

    Raises:
        MissingDGLError: DGL is not installed, or fails to import all the same.
    """
    loaded = sys.modules.get("dgl")
    if loaded is not None and hasattr(loaded, "DGLGraph"):
        return loaded
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        return importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "dgl":
            raise MissingDGLError(_explanation("it is not installed")) from error
        reason = error
    _forget_partial_import()
    sys.modules[_GRAPHBOLT] = ModuleType(_GRAPHBOLT)
    try:
        dgl = importlib.import_module("dgl")
    except (ImportError, OSError) as error:
        _forget_partial_import()
        raise MissingDGLError(_explanation(str(error))) from error
    warnings.warn(
        f"dgl {getattr(dgl, '__version__', '')} was imported without dgl.graphbolt, which does not load here "
        f"({_first_line(reason)}); treemem does not use it",
        stacklevel=2,
    )
    return dgl


def _forget_partial_import() -> None:
    for name in [name for name in sys.modules if name == "dgl" or name.startswith("dgl.")]:
        del sys.modules[name]


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _explanation(reason: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"this needs DGL, and it cannot be imported on Python {version}: {reason}. DGL has wheels for Python 3.10 and "
        "3.11 (pip install dgl==1.1.3) and for 3.12 (pip install dgl==2.1.0 pandas); trees, batches and layers work "
        "without it, only DGL graphs and the naive engine do not"
    )
