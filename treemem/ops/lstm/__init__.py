"""The LSTM, with options that torch's own does not have."""

from __future__ import annotations

from treemem.ops.lstm.naive import LSTMWeights, naive_lstm
from treemem.ops.lstm.step import lstm_step, lstm_step_backward

__all__ = ["LSTMWeights", "lstm_step", "lstm_step_backward", "naive_lstm"]
