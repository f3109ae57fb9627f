"""The gated recurrent unit over packed sequences, which may attend to rows."""

from __future__ import annotations

from treemem.ops.gru.fused import gru, runs_in_cpp
from treemem.ops.gru.naive import Attention, GRUWeights, naive_gru

__all__ = ["Attention", "GRUWeights", "gru", "naive_gru", "runs_in_cpp"]
