"""The Recurrent-Recursive Network: an LSTM that reads its own constituents as it reads tokens."""

from __future__ import annotations

from treemem.ops.rrnet.sequences import run_rrnet
from treemem.ops.rrnet.weights import PolicyWeights, RRNetWeights

__all__ = ["PolicyWeights", "RRNetWeights", "run_rrnet"]
