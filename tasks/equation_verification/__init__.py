"""Equation verification: does the left side equal the right side?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treemem.registry import lazy_attributes

if TYPE_CHECKING:
    from treemem.tasks.equation_verification.data import EquationDataOptions
    from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES
    from treemem.tasks.equation_verification.readers import (
        BadRecord,
        EquationFile,
        equation_vocabulary,
        read_equations,
        read_published,
    )
    from treemem.tasks.equation_verification.task import EquationVerification

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

TASKS = {"equation_verification": "task:EquationVerification"}
"""What this folder registers: the name of a task, and its class."""

__getattr__ = lazy_attributes(
    __name__,
    {
        "readers": ["BadRecord", "EquationFile", "equation_vocabulary", "read_equations", "read_published"],
        "data": ["EquationDataOptions"],
        "task": ["EquationVerification"],
        "published": ["PUBLISHED_FIGURES"],
    },
)
