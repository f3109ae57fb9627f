"""Tree-LSTM whose nodes carry a stack in place of a cell."""

from __future__ import annotations

from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions
from treemem.ops.stack_tree_lstm.step import stack_tree_lstm_gates, stack_tree_lstm_step

__all__ = ["StackTreeLSTMOptions", "stack_tree_lstm_gates", "stack_tree_lstm_step"]
