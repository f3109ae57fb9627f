"""The step of a child-sum Tree-LSTM in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_child_sum_tree_lstm(dropout: float) -> NativeStep:
    """:func:`treemem.ops.child_sum_tree_lstm.child_sum_tree_lstm_step`.

    Its products are ``gates`` (input, output and update) and ``forget`` (one row a child).
    """
    return NativeStep(_SOURCE, dropout=dropout)
