"""Equation verification: does the left side equal the right side?"""

from __future__ import annotations

from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES
from treemem.tasks.equation_verification.readers import BadRecord, EquationFile, read_equations, read_published
from treemem.tasks.equation_verification.task import EquationDataOptions, EquationVerification
from treemem.tasks.equation_verification.vocabulary import equation_vocabulary

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
