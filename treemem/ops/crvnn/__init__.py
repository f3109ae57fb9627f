"""Continuous recursion: every token gives way to its right neighbour with a probability, which composes both."""

from __future__ import annotations

from treemem.ops.crvnn.naive import CRvNNWeights, NeighborEquation, Recursion, TransitionFeatures, naive_steps
from treemem.ops.crvnn.sequences import continuous_recursion, recursion_of, with_ends

__all__ = [
    "CRvNNWeights",
    "NeighborEquation",
    "Recursion",
    "TransitionFeatures",
    "continuous_recursion",
    "naive_steps",
    "recursion_of",
    "with_ends",
]
