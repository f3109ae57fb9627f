"""Tree-LSTM without an order among the children, of any number."""

from __future__ import annotations

from treemem.ops.child_sum_tree_lstm.step import child_sum_tree_lstm_gates, child_sum_tree_lstm_step

__all__ = ["child_sum_tree_lstm_gates", "child_sum_tree_lstm_step"]
