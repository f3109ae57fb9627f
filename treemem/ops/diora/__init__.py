"""DIORA: an inside and an outside pass over all binary trees of a sequence."""

from __future__ import annotations

from treemem.ops.diora.naive import Chart, Charts, DIORAWeights, MLPWeights, PassWeights, TreeLSTMWeights, unit
from treemem.ops.diora.parses import best_parses
from treemem.ops.diora.sequences import inside_outside

__all__ = [
    "Chart",
    "Charts",
    "DIORAWeights",
    "MLPWeights",
    "PassWeights",
    "TreeLSTMWeights",
    "best_parses",
    "inside_outside",
    "unit",
]
