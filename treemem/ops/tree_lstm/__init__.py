"""Tree-LSTM with an order among the children: one forget gate for each."""

from __future__ import annotations

from treemem.ops.tree_lstm.step import tree_lstm_gates, tree_lstm_step

__all__ = ["tree_lstm_gates", "tree_lstm_step"]
