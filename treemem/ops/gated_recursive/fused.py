"""The step of a gated recursive cell in C++."""

from __future__ import annotations

from pathlib import Path

from treemem.ops.native_levels import NativeStep

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_gated_recursive(hidden_size: int) -> NativeStep:
    """:func:`treemem.ops.gated_recursive.gated_recursive_step`; its second product is called ``gates``."""
    return NativeStep(_SOURCE, kept_width=hidden_size + 1, learned="norm")
