"""The Ordered Memory: an attention over slots decides which of them a new element is composed with."""

from __future__ import annotations

from treemem.ops.ordered_memory.naive import (
    NO_DROPOUT,
    Dropouts,
    LayerNormScoreWeights,
    OrderedMemoryWeights,
    PlainCellWeights,
    TanhScoreWeights,
)
from treemem.ops.ordered_memory.sequences import (
    OrderedMemorySteps,
    checked_engine,
    ordered_memory,
    slot_contents,
)

__all__ = [
    "NO_DROPOUT",
    "Dropouts",
    "LayerNormScoreWeights",
    "OrderedMemorySteps",
    "OrderedMemoryWeights",
    "PlainCellWeights",
    "TanhScoreWeights",
    "checked_engine",
    "ordered_memory",
    "slot_contents",
]
