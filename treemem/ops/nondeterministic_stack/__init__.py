"""Stacks of a nondeterministic pushdown automaton (DuSell & Chiang 2020, 2022, 2023), without a controller."""

from __future__ import annotations

from treemem.ops.nondeterministic_stack.naive import naive_readings
from treemem.ops.nondeterministic_stack.step import AutomatonState, automaton_step

__all__ = ["AutomatonState", "automaton_step", "naive_readings"]
