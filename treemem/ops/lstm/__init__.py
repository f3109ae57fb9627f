"""The LSTM, with options that torch's own does not have."""

from __future__ import annotations

from treemem.ops.lstm.naive import LSTMWeights, naive_lstm

__all__ = ["LSTMWeights", "naive_lstm"]
