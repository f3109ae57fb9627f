"""ON-LSTM: an LSTM whose cell is ordered, so that some of its units are kept for longer than others."""

from __future__ import annotations

from treemem.ops.on_lstm.engines import Engine, checked_engine, on_lstm
from treemem.ops.on_lstm.step import OnLSTMOutputs, OnLSTMWeights, on_lstm_gates, on_lstm_step

__all__ = [
    "Engine",
    "OnLSTMOutputs",
    "OnLSTMWeights",
    "checked_engine",
    "on_lstm",
    "on_lstm_gates",
    "on_lstm_step",
]
