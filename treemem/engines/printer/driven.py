"""Printed steps within loops that are written by hand, such as a loop over time, in C++ or in Triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from treemem.engines.printer.cpp import cpp_macro
from treemem.engines.printer.trace import Step, StepProgram, StepShape, trace_step
from treemem.engines.printer.triton_rows import row_source

_WIDTH = 5  # of vectors in the trace; what is printed takes any


class DrivenStep:
    """A step of a row that a driver calls, printed when it is first compiled.

    The C++ says ``namespace lstm { LSTM_STEP }``, and calls ``lstm::forward_step`` and ``lstm::backward_step`` with a
    ``StepRow`` of ``native/step.h``. It lists the step among its structures. ``RowStep`` in ``engines/cuda`` has the
    same step in Triton.

    Args:
        macro: its name in C++.
        step: see :func:`treemem.engines.printer.trace.trace_step`.
        products: how many vectors each product has, by name; 0: it is one number.
        states: names of vectors.
        arity: number of children.
        learned: how many vectors it reads that are the same for all rows.
        numbers: names of further states, ``[rows, 1]``. A step that has them has no children.
    """

    def __init__(
        self,
        macro: str,
        step: Step,
        products: Mapping[str, int],
        states: Sequence[str],
        arity: int,
        learned: int = 0,
        numbers: Sequence[str] = (),
    ) -> None:
        self.step, self._macro = step, macro
        parts = {name: (1, (_WIDTH,) * count or (1,)) for name, count in products.items()}
        vectors = dict.fromkeys(states, (_WIDTH,)) | dict.fromkeys(numbers, (1,))
        self._shape = StepShape(arity, _WIDTH, parts, vectors, [(_WIDTH,)] * learned)

    @cached_property
    def program(self) -> StepProgram:
        """What is printed."""
        return trace_step(self.step, self._shape)

    @cached_property
    def definition(self) -> str:
        """The macro for the compiler."""
        return cpp_macro(self._macro, self.program)

    @cached_property
    def triton(self) -> str:
        """A module in Triton; see :func:`treemem.engines.printer.triton_rows.row_source`."""
        return row_source(self.program)
