"""Equation verification: does the left side equal the right side?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES
from treemem.tasks.equation_verification.readers import (
    BadRecord,
    EquationFile,
    equation_vocabulary,
    read_equations,
    read_published,
)

if TYPE_CHECKING:
    from treemem.tasks.equation_verification.data import EquationDataOptions
    from treemem.tasks.equation_verification.task import EquationVerification

_MODULES = {"EquationDataOptions": "data", "EquationVerification": "task"}  # they import torch

__all__ = [
    "PUBLISHED_FIGURES",
    "BadRecord",
    "EquationDataOptions",
    "EquationFile",
    "EquationVerification",
    "equation_vocabulary",
    "read_equations",
    "read_published",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, so that a process that only reads records needs no torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
