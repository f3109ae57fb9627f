"""An LSTM as a plain loop over time, with dropout on its update where torch's own has none."""

from __future__ import annotations

from treemem.ops.lstm.naive import LSTMWeights, naive_lstm

__all__ = ["LSTMWeights", "naive_lstm"]
