"""Equation completion: what stands in the blank of a true equation?

A network that verifies equations scores an equation with each of 1,470 candidates in its blank, and the rank of the
right one says how much it knows (Arabshahi et al. 2020). Nothing is trained here.
"""

from __future__ import annotations

from treemem.tasks.equation_verification.completion.blanks import (
    BlankedEquations,
    Blanks,
    blank_out,
    draw_blanks,
    place_blanks,
    read_blanked,
)
from treemem.tasks.equation_verification.completion.candidates import Candidates, make_candidates, read_candidates
from treemem.tasks.equation_verification.completion.completion import complete, filling_scores
from treemem.tasks.equation_verification.completion.ranks import Completion, RankScore
from treemem.tasks.equation_verification.completion.suggestions import Filling, best_fillings, fill

__all__ = [
    "BlankedEquations",
    "Blanks",
    "Candidates",
    "Completion",
    "Filling",
    "RankScore",
    "best_fillings",
    "blank_out",
    "complete",
    "draw_blanks",
    "fill",
    "filling_scores",
    "make_candidates",
    "place_blanks",
    "read_blanked",
    "read_candidates",
]
