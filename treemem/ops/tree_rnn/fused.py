"""The step of a Tree-RNN in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.activation import ActivationName, native_number
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_tree_rnn(activation_name: ActivationName, dropout: float) -> NativeStep:
    """:func:`treemem.ops.tree_rnn.tree_rnn_step`; its product is called ``gates``."""
    return NativeStep(_SOURCE, (native_number(activation_name),), dropout)
