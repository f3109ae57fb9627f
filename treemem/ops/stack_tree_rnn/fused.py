"""The step of a Tree-RNN with a stack, reading its children's tops, in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.activation import ActivationName, native_number
from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_stack_tree_rnn(
    stack_size: int, activation_name: ActivationName, no_op: bool, pop_zero_before_map: bool, dropout: float
) -> NativeStep:
    """:func:`treemem.ops.stack_tree_rnn.stack_tree_rnn_step`; its products are ``hidden``, ``control`` and ``rows``."""
    return NativeStep(_SOURCE, (stack_size, native_number(activation_name), no_op, pop_zero_before_map), dropout)
