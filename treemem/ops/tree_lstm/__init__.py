"""Tree-LSTM with an order among the children: one forget gate for each."""

from __future__ import annotations

from treemem.ops.tree_lstm.fused import native_tree_lstm
from treemem.ops.tree_lstm.step import tree_lstm_gates, tree_lstm_step

__all__ = ["native_tree_lstm", "tree_lstm_gates", "tree_lstm_step"]
