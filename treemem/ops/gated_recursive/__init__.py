"""Gated recursive cell: a two-layer network gates the children and a candidate, and a layer norm follows."""

from __future__ import annotations

from treemem.ops.gated_recursive.cell import (
    CellActivation,
    GatedCellWeights,
    gated_cell,
    gated_recursive_gates,
    gated_recursive_step,
)
from treemem.ops.gated_recursive.levels import Levels, gated_levels

__all__ = [
    "CellActivation",
    "GatedCellWeights",
    "Levels",
    "gated_cell",
    "gated_levels",
    "gated_recursive_gates",
    "gated_recursive_step",
]
