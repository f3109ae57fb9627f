"""The Parsing-Reading-Predict Network: gates from distances, and an LSTM that attends to its own past."""

from __future__ import annotations

from treemem.ops.prpn.gates import slot_gates
from treemem.ops.prpn.reader import ReaderWeights, read_back, read_layer, scaled_norm

__all__ = ["ReaderWeights", "read_back", "read_layer", "scaled_norm", "slot_gates"]
