"""The step of an n-ary Tree-LSTM in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_tree_lstm(dropout: float, *, bounded: bool = False) -> NativeStep:
    """:func:`treemem.ops.tree_lstm.tree_lstm_step`; its product is called ``gates``.

    Args:
        dropout: probability that an entry of ``u`` is dropped.
        bounded: whether a node hands ``tanh(c)`` to its parent as ``c``.
    """
    return NativeStep(_SOURCE, (int(bounded),), dropout)
