"""The step of a Tree-LSTM with a stack in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.activation import native_number
from treemem.ops.native_levels import NativeStep
from treemem.ops.stack_tree_lstm.options import StackTreeLSTMOptions

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_stack_tree_lstm(options: StackTreeLSTMOptions, dropout: float) -> NativeStep | None:
    """:func:`treemem.ops.stack_tree_lstm.stack_tree_lstm_step`; its product is called ``gates``.

    None for variants that are not of the published tables: those with element-wise actions on a stack whose top row
    alone is read.
    """
    if (
        options.actions != "elementwise"
        or options.normalize not in ("none", "softmax_of_gates")
        or options.top_k > 1
        or options.queue
        or options.input_gate
    ):
        return None
    functions = native_number(options.activation), native_number(options.output_activation)
    actions = "pop" in options.action_names, "no_op" in options.action_names
    normalized = options.normalize == "softmax_of_gates"
    return NativeStep(_SOURCE, (options.stack_size, *functions, normalized, *actions), dropout)
